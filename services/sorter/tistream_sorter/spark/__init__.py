"""The Spark session of a sorter, and what makes it start fast and closed to strangers."""
