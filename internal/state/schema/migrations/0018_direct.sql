-- Why a run went to one Associate at once; '' if a Director planned it.
ALTER TABLE runs ADD COLUMN direct TEXT NOT NULL DEFAULT '';
