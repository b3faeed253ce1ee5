"""History: Parquet files by table, day and hour, and DuckDB views over them."""
