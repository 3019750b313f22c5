-- The whole address of a page that an approval is about; '' for other acts.
ALTER TABLE approvals ADD COLUMN url TEXT NOT NULL DEFAULT '';
