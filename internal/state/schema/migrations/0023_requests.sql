-- What an approval of a request is about, nothing for other acts: its method, all of it as a blob, the effect that it makes once
-- more, and what a person is shown of it.
ALTER TABLE approvals ADD COLUMN method TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN sends TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN again TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN request TEXT NOT NULL DEFAULT 'null';
