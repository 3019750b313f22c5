-- What was asked for and what was done about it.
CREATE TABLE runs (
  id         TEXT    PRIMARY KEY,
  document   TEXT    NOT NULL DEFAULT '',
  prompt     TEXT    NOT NULL,
  user       TEXT    NOT NULL DEFAULT '',
  status     TEXT    NOT NULL,
  reason     TEXT    NOT NULL DEFAULT '',
  command    TEXT    NOT NULL DEFAULT '', -- the user's last pause, resume or cancel
  objective  TEXT    NOT NULL DEFAULT '',
  plan       TEXT    NOT NULL DEFAULT '[]',
  provider   TEXT    NOT NULL DEFAULT '',
  model      TEXT    NOT NULL DEFAULT '',
  budget     TEXT    NOT NULL DEFAULT '{}',
  summary    TEXT    NOT NULL DEFAULT '',
  error      TEXT    NOT NULL DEFAULT '',
  verified   TEXT    NOT NULL DEFAULT '',
  checkpoint TEXT    NOT NULL DEFAULT '',
  usage      TEXT    NOT NULL DEFAULT '{}', -- as reported at the end
  created    TEXT    NOT NULL,
  updated    TEXT    NOT NULL,
  ended      TEXT    NOT NULL DEFAULT '',
  seq        INTEGER NOT NULL, -- of the prompt
  last_seq   INTEGER NOT NULL  -- of the newest event that changed this row
) STRICT;
CREATE INDEX runs_by_seq ON runs (seq);
CREATE INDEX runs_open ON runs (seq) WHERE status NOT IN ('done', 'failed', 'cancelled');

CREATE TABLE conversations (
  id      TEXT    PRIMARY KEY, -- the run's id
  run     TEXT    NOT NULL REFERENCES runs (id),
  started TEXT    NOT NULL,
  seq     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
  seq          INTEGER PRIMARY KEY REFERENCES events (seq),
  conversation TEXT NOT NULL REFERENCES conversations (id),
  role         TEXT NOT NULL, -- user, director or system
  kind         TEXT NOT NULL, -- prompt, steer, question, answer or report
  content      TEXT NOT NULL,
  time         TEXT NOT NULL
) STRICT;
CREATE INDEX messages_by_conversation ON messages (conversation, seq);

CREATE TABLE questions (
  run          TEXT    NOT NULL REFERENCES runs (id),
  id           TEXT    NOT NULL,
  text         TEXT    NOT NULL,
  choices      TEXT    NOT NULL DEFAULT '[]',
  "default"    TEXT    NOT NULL DEFAULT '',
  deadline     TEXT    NOT NULL DEFAULT '',
  answer       TEXT    NOT NULL DEFAULT '',
  by_default   INTEGER NOT NULL DEFAULT 0,
  asked_seq    INTEGER NOT NULL,
  answered_seq INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX questions_open ON questions (asked_seq) WHERE answered_seq = 0;

CREATE TABLE tasks (
  id           TEXT    PRIMARY KEY,
  run          TEXT    NOT NULL REFERENCES runs (id),
  kind         TEXT    NOT NULL,
  goal         TEXT    NOT NULL,
  status       TEXT    NOT NULL, -- requested, running, or the last result's status
  attempt      INTEGER NOT NULL,
  task         TEXT    NOT NULL, -- the DirectorTask
  base         TEXT    NOT NULL DEFAULT '',
  head         TEXT    NOT NULL DEFAULT '',
  summary      TEXT    NOT NULL DEFAULT '',
  verification TEXT    NOT NULL DEFAULT '', -- pass, fail or unknown
  result       TEXT    NOT NULL DEFAULT '', -- the last AssociateResult
  requested    TEXT    NOT NULL,
  started      TEXT    NOT NULL DEFAULT '',
  finished     TEXT    NOT NULL DEFAULT '',
  seq          INTEGER NOT NULL
) STRICT;
CREATE INDEX tasks_by_run ON tasks (run, seq);
CREATE INDEX tasks_open ON tasks (seq) WHERE status IN ('requested', 'running');

CREATE TABLE attempts (
  task         TEXT    NOT NULL REFERENCES tasks (id),
  attempt      INTEGER NOT NULL,
  box          TEXT    NOT NULL DEFAULT '',
  fence        TEXT    NOT NULL DEFAULT '',
  base         TEXT    NOT NULL DEFAULT '',
  status       TEXT    NOT NULL, -- running, or the result's status
  result       TEXT    NOT NULL DEFAULT '',
  started_seq  INTEGER NOT NULL DEFAULT 0,
  finished_seq INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (task, attempt)
) STRICT;

CREATE TABLE tool_calls (
  task         TEXT    NOT NULL REFERENCES tasks (id),
  attempt      INTEGER NOT NULL,
  call         TEXT    NOT NULL,
  run          TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  args         TEXT    NOT NULL,
  read_only    INTEGER NOT NULL,
  status       TEXT    NOT NULL, -- called (its outcome is unknown), ok or error
  output       TEXT    NOT NULL DEFAULT '',
  output_ref   TEXT    NOT NULL DEFAULT '',
  duration_ms  INTEGER NOT NULL DEFAULT 0,
  called_seq   INTEGER NOT NULL,
  returned_seq INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (task, attempt, call)
) STRICT;
CREATE INDEX tool_calls_by_run ON tool_calls (run, called_seq);

CREATE TABLE verifications (
  seq     INTEGER PRIMARY KEY REFERENCES events (seq),
  run     TEXT    NOT NULL DEFAULT '',
  task    TEXT    NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL,
  profile TEXT    NOT NULL,
  status  TEXT    NOT NULL,
  tree    TEXT    NOT NULL DEFAULT '',
  reason  TEXT    NOT NULL DEFAULT '',
  checks  TEXT    NOT NULL DEFAULT '[]',
  time    TEXT    NOT NULL
) STRICT;
CREATE INDEX verifications_by_task ON verifications (task, seq);

CREATE TABLE commands (
  id           TEXT    PRIMARY KEY,
  argv         TEXT    NOT NULL,
  cwd          TEXT    NOT NULL DEFAULT '',
  user         TEXT    NOT NULL DEFAULT '',
  exit_code    INTEGER,
  duration_ms  INTEGER NOT NULL DEFAULT 0,
  reason       TEXT    NOT NULL DEFAULT '',
  started_seq  INTEGER NOT NULL,
  finished_seq INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX commands_open ON commands (started_seq) WHERE finished_seq = 0;
