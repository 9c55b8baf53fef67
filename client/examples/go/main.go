// Command follow writes a table's changes to a file, each once and in order, with the client that oapi-codegen makes
// from TiStream's OpenAPI document:
//
//	follow URL CLUSTER TENANT DATABASE TABLE START_TS FILE
//
// Each answer is appended with its last line, which has the cursor of the next request. So events and cursor are stored
// by one write, and a start after a crash discards what was appended after the last cursor.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"example.com/follow/tistream"
)

// last is the last line of an answer: `resolved`, or `continue`, which has no resolved_ts.
type last struct {
	Type   string `json:"type"`
	Cursor string `json:"cursor"`
}

func main() {
	if len(os.Args) != 8 {
		log.Fatal("usage: follow URL CLUSTER TENANT DATABASE TABLE START_TS FILE")
	}
	client, err := tistream.NewClient(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	file, err := os.OpenFile(os.Args[7], os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	cursor, err := resume(file)
	if err != nil {
		log.Fatal(err)
	}
	for {
		page, next, err := pull(client, os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6], cursor)
		if err != nil {
			log.Fatal(err)
		}
		if next == "" { // the answer was cut off, or the server is away
			time.Sleep(time.Second)
			continue
		}
		if _, err := file.Write(page); err != nil {
			log.Fatal(err)
		}
		cursor = next
	}
}

// pull returns an answer and the cursor in its last line; no cursor if the same request has to be sent again.
func pull(
	client *tistream.Client, cluster, tenant, database, table, startTs, cursor string,
) ([]byte, string, error) {
	waitMs := 10_000
	query := tistream.PullTableParams{WaitMs: &waitMs}
	if cursor == "" {
		query.StartTs = &startTs
	} else {
		query.Cursor = &cursor
	}
	// Not PullTableWithResponse, which parses an answer as one JSON value: an answer has one on each line.
	answer, err := client.PullTable(context.Background(), cluster, tenant, database, table, &query)
	if err != nil {
		log.Print(err)
		return nil, "", nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Print(err)
		return nil, "", nil
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return body, cursorOf(body), nil
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		time.Sleep(time.Duration(seconds) * time.Second)
		return nil, "", nil
	}
	return nil, "", fmt.Errorf("%s: %s", answer.Status, body)
}

// cursorOf returns the cursor in the last line of an answer; "" if the last line is incomplete or an event.
func cursorOf(page []byte) string {
	if !bytes.HasSuffix(page, []byte("\n")) {
		return ""
	}
	lines := bytes.Split(bytes.TrimSuffix(page, []byte("\n")), []byte("\n"))
	var end last
	if json.Unmarshal(lines[len(lines)-1], &end) != nil || (end.Type != "resolved" && end.Type != "continue") {
		return ""
	}
	return end.Cursor
}

// resume truncates the file after its last cursor, which it returns, and moves to the end.
func resume(file *os.File) (string, error) {
	stored, err := io.ReadAll(file)
	if err != nil {
		return "", err
	}
	cursor := ""
	for {
		stored = stored[:bytes.LastIndexByte(stored, '\n')+1]
		if cursor = cursorOf(stored); cursor != "" || len(stored) == 0 {
			break
		}
		stored = stored[:len(stored)-1]
	}
	_, err = file.Seek(int64(len(stored)), io.SeekStart)
	return cursor, errors.Join(err, file.Truncate(int64(len(stored))))
}
