-- What needs a person's answer on the console, and what became of it.
CREATE TABLE approvals (
  id           TEXT    PRIMARY KEY,
  run          TEXT    NOT NULL REFERENCES runs (id),
  task         TEXT    NOT NULL DEFAULT '',
  attempt      INTEGER NOT NULL,
  kind         TEXT    NOT NULL,
  host         TEXT    NOT NULL,
  port         INTEGER NOT NULL,
  digest       TEXT    NOT NULL, -- of the act; the answer names it
  claim        TEXT    NOT NULL DEFAULT '', -- what the agent says
  deadline     TEXT    NOT NULL,
  answer       TEXT    NOT NULL DEFAULT '', -- once, run or deny
  answered_by  TEXT    NOT NULL DEFAULT '', -- user or system
  reason       TEXT    NOT NULL DEFAULT '', -- why the system denied it
  asked        TEXT    NOT NULL,
  asked_seq    INTEGER NOT NULL,
  answered     TEXT    NOT NULL DEFAULT '',
  answered_seq INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_by_run ON approvals (run, asked_seq);
CREATE INDEX approvals_open ON approvals (asked_seq) WHERE answered_seq = 0;

-- What went through the tunnels of a decision, as its meter said last.
CREATE TABLE egress_traffic (
  tunnel   TEXT    PRIMARY KEY,
  box      TEXT    NOT NULL,
  host     TEXT    NOT NULL,
  port     INTEGER NOT NULL,
  sent     INTEGER NOT NULL, -- bytes from the box
  received INTEGER NOT NULL, -- bytes to the box
  ended    INTEGER NOT NULL,
  run      TEXT    NOT NULL DEFAULT '',
  task     TEXT    NOT NULL DEFAULT '',
  day      TEXT    NOT NULL, -- UTC, YYYY-MM-DD
  time     TEXT    NOT NULL,
  seq      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX egress_traffic_by_run ON egress_traffic (run, seq);
