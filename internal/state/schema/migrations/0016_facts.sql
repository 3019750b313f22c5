-- What people told the computer to keep. A fact is named by the event that it was
-- remembered with; one that was forgotten stays, and may be kept again.
CREATE TABLE facts (
  id      TEXT    PRIMARY KEY,
  text    TEXT    NOT NULL,
  sources TEXT    NOT NULL, -- JSON list of the events that it came from
  run     TEXT    NOT NULL, -- whose Director noted it; "" if a person said it by itself
  actor   TEXT    NOT NULL,
  user    TEXT    NOT NULL,
  time    TEXT    NOT NULL,
  seq     INTEGER NOT NULL,
  kept    INTEGER NOT NULL DEFAULT 1,
  changed INTEGER NOT NULL -- sequence of the newest event about it
) STRICT, WITHOUT ROWID;
CREATE INDEX facts_by_seq ON facts (seq);
CREATE INDEX facts_by_change ON facts (changed);
