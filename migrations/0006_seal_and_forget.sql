-- Texts sealed at rest, wiped, numbers hashed, days dropped.

-- Keys that texts of this database were sealed under: never the key, only by what it is recognised.
CREATE TABLE data_keys (
    id          smallint PRIMARY KEY,
    check_value bytea NOT NULL UNIQUE,
    created_at  bigint NOT NULL,
    whole_at    bigint                      -- since when every text is under this key or a later one; null: not looked
);

-- Texts whose time is over are found by class and end; rows enter the index once, with the change that ends them.
CREATE INDEX messages_to_wipe ON messages (class, final_at) WHERE final_at IS NOT NULL AND body IS NOT NULL;
CREATE INDEX inbound_to_wipe ON inbound (received_at) WHERE body IS NOT NULL;

-- How far numbers of a day have been replaced by their hash.
CREATE TABLE hashed_days (
    day     date PRIMARY KEY,
    up_to   uuid,                           -- the last message looked at; null: from the beginning
    waits   boolean NOT NULL,               -- some before this place were not old enough yet
    next_at bigint NOT NULL,                -- when to look again
    done_at bigint                          -- null: not all of them yet
);

-- Numbers whose owner asked to be forgotten while some of their messages were still open. Gone once all of it is done.
CREATE TABLE erasures (
    number       text PRIMARY KEY,
    requested_at bigint NOT NULL,
    requested_by text NOT NULL,
    next_at      bigint NOT NULL            -- when to look again whether all of it is over
);
