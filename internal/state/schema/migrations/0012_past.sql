-- Questions about the past that the log's length made slower. An index that holds
-- the type lets a run's or task's events of one type be found without the others' rows.
DROP INDEX events_by_run;
CREATE INDEX events_by_run ON events (run, seq, type) WHERE run <> '';
DROP INDEX events_by_task;
CREATE INDEX events_by_task ON events (task, seq, type) WHERE task <> '';
-- What clients had stored since midnight.
CREATE INDEX events_of_users ON events (time) WHERE source GLOB '*/user';
CREATE INDEX publishes_live ON publishes (started_seq) WHERE live = 1;
CREATE INDEX proposals_by_seq ON proposals (seq);
CREATE INDEX approvals_by_seq ON approvals (asked_seq);
