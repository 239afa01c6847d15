"""The capacity report: what the proxies' logs say, as tables, one page and a short summary.

It shares nothing with the proxy but the format in docs/log-format.md, and needs PySpark and matplotlib, which the
proxy does not. Modules import only from those further down in this list (a contract in pyproject.toml):

1. `job` is the file for `spark-submit`; `cli` has the options. `requirements` says what is missing, before anything large is
   imported. `follow` updates the report again and again. `pipeline` has the steps of one report.
2. `render` makes the page, its plots and the terminal's summary of the plain values that `summary` takes from the tables, as they
   are stored. `render` knows neither Spark nor the logs.
3. `period_tables` makes the tables of the whole period: `fill_forecast` says when volumes fill, with `forecast`, which knows no
   Spark; `quotas` replays the traffic against limits; `chargeback` computes costs; `entities` compares principals, clients, topics.
4. `read` finds the lines, with `log_files` and `kafka`. `ingest` adds them to the tables. Lines as proxies write them, nearly all,
   are parsed by `arrow_parse` in local files (with `text_blocks`) and by `fast_parse` elsewhere, and all others by `parse`, by
   `schema`, the fields of docs/log-format.md as data. `validation` has the rules for lines and `reasons` their names. Every line
   that is read is either valid or in quarantine.
5. `line_store` keeps every valid line once, as Parquet, by type and day. All tables are made of it: `tables` names them,
   `transforms` makes them, one concept a file, from DataFrame to DataFrame. `parquet` writes them, `stored` reads them for Spark
   and for sums of a few rows by Arrow (`arrow_rows` the other way), `publish` moves them into the out folder, all or none.
   docs/report.md describes them.
6. `session` starts Spark, sooner with what `class_archive` made; `parallel` runs queries concurrently; `errors` has the error for
   users.

To add a table by day: a file in `transforms`, its name in `tables`, its columns in docs/report.md (a test compares). To add a part
of the page: a value in `summary.model`, the sum that fills it in `summary`, a section in `render/report.html`. To add a type of
line or a version: `schema`.
"""
