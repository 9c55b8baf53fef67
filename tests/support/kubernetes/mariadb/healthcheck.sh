#!/bin/sh
exec mariadb-admin --no-defaults --socket=/run/mysqld/mysqld.sock ping
