-- Optional: wakes the node that reads the outbox. Commits with NOTIFY wait for each other.
CREATE OR REPLACE FUNCTION onceward_outbox_notify() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    NOTIFY onceward_outbox;
    RETURN NULL;
END
$$;

CREATE OR REPLACE TRIGGER onceward_outbox_notify AFTER INSERT ON onceward_outbox
FOR EACH STATEMENT EXECUTE FUNCTION onceward_outbox_notify();
