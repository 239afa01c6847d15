"""The capacity report: what the proxies' logs say, as tables, one page and a few sentences.

It shares nothing with the proxy but the format in docs/log-format.md, and needs PySpark, statsmodels and matplotlib, which the
proxy does not. The way of a report, and the rooms on it:

1. `cli` takes the options and `requirements` says what is missing, before anything large is imported. `job` is the whole way; it
   is also what `spark-submit` runs. `follow` goes it again and again. `session` starts a Spark that is quiet and leaves nothing
   behind. `errors` has the one error that a person should read.
2. `folder`, `kafka` and `read` find the lines; `plain` takes those apart that look as proxies write them, which are nearly all, and
   `parse` the others, by `schema`, the fields of docs/log-format.md as data; `verdict` holds the rules and `reasons` their names.
   Every line read is either good or in quarantine.
3. `store` has every good line once, as Parquet, by type and day: all that follows is made of it. `absorb` adds lines to it and
   makes the tables of the days that they are about. `tables` names them, `transforms` makes them: one concept a file, from
   DataFrame to DataFrame. `parquet` writes and reads them, `write` puts them into the out folder, all or none. docs/report.md
   describes them.
4. `whole` makes the tables of the whole period: `filling` says when volumes fill with `forecast`, which knows no Spark; `quotas`
   replays the traffic against limits; `charge` says what it costs.
5. `summary` boils the tables down to plain values, and `render` makes the page, its plots and the terminal's summary of those.
   Neither knows the logs.

To add a table by day: a file in `transforms`, its name in `tables`, its columns in docs/report.md (a test compares). To add a part
of the page: a value in `summary.model`, the query that fills it beside the others in `summary`, a section in `render.sections`. To
add a type of line or a version: `schema`.
"""
