"""What happens in the simulated cluster: transactions, DDL jobs, region changes and failures. Also the truth about the
resulting changes."""
