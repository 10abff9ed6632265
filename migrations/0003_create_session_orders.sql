-- What operators order a session to do besides pausing it (0002): try again after a refusal stopped it.
-- Nothing here needs to be remembered for long: egress compares the instant with the moment at which it stopped.
CREATE TABLE session_orders (
    session    text PRIMARY KEY,
    resumed_at bigint NOT NULL
);
