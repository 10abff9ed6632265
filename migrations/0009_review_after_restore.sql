-- What a restored database cannot know: whether that which waited when the backup was made has been sent since.

-- Where the roles last found this database (cluster, database, table); another place means that it was restored.
-- Null until the first role started.
ALTER TABLE instance ADD COLUMN identity text;

-- One row per restore that was noticed. The open claims of `owner_id` (a row of processes that never ran) stand for
-- submits that may have happened after the backup was made.
CREATE TABLE restores (
    owner_id    bigint PRIMARY KEY,
    noticed_at  bigint NOT NULL,
    noticed_by  text   NOT NULL,
    reviewed_at bigint                      -- all claims are closed as in doubt; null: the review broke off, go on with it
);
