-- The things of a computer: files, history, desktop, network and money.
CREATE TABLE files (
  path    TEXT    PRIMARY KEY,
  size    INTEGER NOT NULL,
  sha256  TEXT    NOT NULL DEFAULT '',
  updated TEXT    NOT NULL,
  seq     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE repositories (
  path    TEXT    PRIMARY KEY,
  origin  TEXT    NOT NULL,
  remote  TEXT    NOT NULL DEFAULT '',
  "commit" TEXT   NOT NULL DEFAULT '',
  files   INTEGER NOT NULL,
  bytes   INTEGER NOT NULL,
  skipped INTEGER NOT NULL DEFAULT 0,
  added   TEXT    NOT NULL,
  seq     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
  id       TEXT    PRIMARY KEY, -- the commit
  parent   TEXT    NOT NULL DEFAULT '',
  tree     TEXT    NOT NULL,
  kind     TEXT    NOT NULL,
  message  TEXT    NOT NULL,
  at_seq   INTEGER NOT NULL, -- last sequence mirrored before the commit
  verified TEXT    NOT NULL,
  files    INTEGER NOT NULL,
  skipped  TEXT    NOT NULL DEFAULT '[]',
  run      TEXT    NOT NULL DEFAULT '',
  task     TEXT    NOT NULL DEFAULT '',
  time     TEXT    NOT NULL,
  seq      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX checkpoints_by_seq ON checkpoints (seq);

CREATE TABLE restores (
  seq        INTEGER PRIMARY KEY REFERENCES events (seq),
  "to"       TEXT    NOT NULL,
  safety     TEXT    NOT NULL,
  checkpoint TEXT    NOT NULL,
  paths      TEXT    NOT NULL DEFAULT '[]',
  undo       INTEGER NOT NULL DEFAULT 0,
  time       TEXT    NOT NULL
) STRICT;

CREATE TABLE publishes (
  id           TEXT    PRIMARY KEY,
  run          TEXT    NOT NULL DEFAULT '',
  task         TEXT    NOT NULL DEFAULT '',
  "commit"     TEXT    NOT NULL,
  base         TEXT    NOT NULL,
  live         INTEGER NOT NULL,
  paths        INTEGER NOT NULL,
  conflicts    TEXT    NOT NULL DEFAULT '[]',
  inverted     INTEGER NOT NULL DEFAULT 0,
  started_seq  INTEGER NOT NULL,
  finished_seq INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX publishes_open ON publishes (started_seq) WHERE finished_seq = 0;
CREATE INDEX publishes_by_task ON publishes (task, started_seq);

CREATE TABLE windows (
  id     TEXT    PRIMARY KEY,
  app    TEXT    NOT NULL,
  title  TEXT    NOT NULL,
  x      INTEGER NOT NULL,
  y      INTEGER NOT NULL,
  w      INTEGER NOT NULL,
  h      INTEGER NOT NULL,
  z      INTEGER NOT NULL,
  state  TEXT    NOT NULL,
  props  TEXT    NOT NULL DEFAULT '{}',
  seq    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE theme (
  id     INTEGER PRIMARY KEY CHECK (id = 1),
  theme  TEXT    NOT NULL,
  sha256 TEXT    NOT NULL,
  time   TEXT    NOT NULL,
  seq    INTEGER NOT NULL
) STRICT;

CREATE TABLE builds (
  seq         INTEGER PRIMARY KEY REFERENCES events (seq),
  "commit"    TEXT    NOT NULL,
  tree        TEXT    NOT NULL,
  files       INTEGER NOT NULL,
  bytes       INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL,
  time        TEXT    NOT NULL
) STRICT;

CREATE TABLE egress (
  seq     INTEGER PRIMARY KEY REFERENCES events (seq),
  allowed INTEGER NOT NULL,
  box     TEXT    NOT NULL,
  kind    TEXT    NOT NULL,
  host    TEXT    NOT NULL,
  port    INTEGER NOT NULL,
  address TEXT    NOT NULL DEFAULT '',
  rule    TEXT    NOT NULL DEFAULT '',
  reason  TEXT    NOT NULL DEFAULT '',
  run     TEXT    NOT NULL DEFAULT '',
  task    TEXT    NOT NULL DEFAULT '',
  time    TEXT    NOT NULL
) STRICT;
CREATE INDEX egress_by_task ON egress (task, seq) WHERE task <> '';

CREATE TABLE usage (
  call       TEXT    PRIMARY KEY,
  run        TEXT    NOT NULL DEFAULT '',
  task       TEXT    NOT NULL DEFAULT '',
  role       TEXT    NOT NULL,
  provider   TEXT    NOT NULL,
  model      TEXT    NOT NULL,
  outcome    TEXT    NOT NULL,
  retries    INTEGER NOT NULL,
  estimated  INTEGER NOT NULL,
  tokens_in  INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  wall_ms    INTEGER NOT NULL,
  cost_usd   REAL    NOT NULL,
  day        TEXT    NOT NULL, -- UTC, YYYY-MM-DD
  time       TEXT    NOT NULL,
  seq        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_run ON usage (run);
CREATE INDEX usage_by_day ON usage (day);
