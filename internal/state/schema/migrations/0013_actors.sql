-- Who acted, as the event says it; and what ids are unique within, which is the
-- source but for people, apps and programs, who share one: as it was called
-- before they were told apart.
ALTER TABLE events ADD COLUMN actor  TEXT NOT NULL DEFAULT '';
ALTER TABLE events ADD COLUMN origin TEXT NOT NULL DEFAULT '';
UPDATE events SET origin = source;
DROP INDEX events_by_id;
CREATE UNIQUE INDEX events_by_id ON events (origin, id) WHERE duplicate = 0;
DROP INDEX events_of_users;
CREATE INDEX events_of_clients ON events (time) WHERE origin GLOB '*/user';
-- What was a user's is a person's.
UPDATE messages  SET role        = 'person' WHERE role        = 'user';
UPDATE revisions SET role        = 'person' WHERE role        = 'user';
UPDATE proposals SET role        = 'person' WHERE role        = 'user';
UPDATE approvals SET answered_by = 'person' WHERE answered_by = 'user';
