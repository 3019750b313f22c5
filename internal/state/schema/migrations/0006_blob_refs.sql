-- Every blob that an event refers to, by whatever field, and the first event
-- that does: what collection must keep.
CREATE TABLE blob_refs (
  ref TEXT    PRIMARY KEY,
  seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
