"""The MySQL sink: writes the net change of each window into a MySQL, MariaDB or TiDB server, with the progress in the
same transaction."""
