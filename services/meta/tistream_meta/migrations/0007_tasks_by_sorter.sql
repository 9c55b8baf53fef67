CREATE INDEX tasks_by_sorter ON tasks (sorter_node);
