-- How long a run stood still with the machine or with choir.
ALTER TABLE runs ADD COLUMN stood_ms INTEGER NOT NULL DEFAULT 0;
