// Many pgx clients that each know what their answers must be. See ../README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Connections differ in how pgx speaks: named statements from its cache, unnamed ones, or text.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheStatement,
	pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

var answers, kept atomic.Int64

type client struct {
	number int
	conn   *pgx.Conn
	dice   *rand.Rand
}

type scenario struct {
	name string
	run  func(*client, context.Context, int) error
}

var scenarios = []scenario{
	{"own statement under a shared name", (*client).ownStatement},
	{"shared texts", (*client).sharedTexts},
	{"errors", (*client).failures},
	{"pipeline", (*client).pipeline},
	{"pipeline with an error", (*client).brokenPipeline},
	{"transaction", (*client).transaction},
	{"copy", (*client).copy},
	{"large results", (*client).large},
	{"cancel", (*client).cancel},
	{"terminate", (*client).terminate},
}

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: drivers HOST PORT USER DBNAME CLIENTS ROUNDS")
		os.Exit(2)
	}
	url := fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable",
		os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	clients, rounds := number(os.Args[5]), number(os.Args[6])
	ctx, stop := context.WithTimeout(context.Background(), 100*time.Second)
	defer stop()
	var wait sync.WaitGroup
	problems := make(chan error, clients)
	for n := 0; n < clients; n++ {
		wait.Add(1)
		go func(n int) {
			defer wait.Done()
			if err := work(ctx, url, n, rounds); err != nil {
				problems <- fmt.Errorf("client %d: %w", n, err)
			}
		}(n)
	}
	wait.Wait()
	close(problems)
	failed := false
	for problem := range problems {
		failed = true
		fmt.Fprintln(os.Stderr, problem)
	}
	json.NewEncoder(os.Stdout).Encode(map[string]int64{"answers": answers.Load(), "kept": kept.Load()})
	if failed {
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return n
}

func work(ctx context.Context, url string, n, rounds int) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = modes[n%len(modes)]
	config.StatementCacheCapacity = 16 // fewer than there are texts: it deallocates, too
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	c := &client{n, conn, rand.New(rand.NewSource(int64(n)))}
	for round := 0; round < rounds; round++ {
		for _, at := range c.dice.Perm(len(scenarios)) {
			if err := scenarios[at].run(c, ctx, round); err != nil {
				return fmt.Errorf("%s, round %d, %s: %w", scenarios[at].name, round, config.DefaultQueryExecMode, err)
			}
		}
	}
	return nil
}

// text asks for one text, which must be the expected one.
func (c *client) text(ctx context.Context, expected, sql string, arguments ...any) error {
	var heard string
	if err := c.conn.QueryRow(ctx, sql, arguments...).Scan(&heard); err != nil {
		return fmt.Errorf("%q: %w", sql, err)
	}
	return c.same(expected, heard)
}

func (c *client) same(expected, heard any) error {
	answers.Add(1)
	if expected != heard {
		return fmt.Errorf("expected %.100v, heard %.100v", expected, heard)
	}
	return nil
}

// fails demands an error of this SQLSTATE.
func (c *client) fails(err error, sqlstate string) error {
	answers.Add(1)
	var told *pgconn.PgError
	if !errors.As(err, &told) || told.Code != sqlstate {
		return fmt.Errorf("expected %s, heard %v", sqlstate, err)
	}
	return nil
}

// Every client has a statement "mine", and each one's text is its own.
func (c *client) ownStatement(ctx context.Context, round int) error {
	sql := fmt.Sprintf("SELECT 'client %d.%d, ' || $1::int || ', ' || $2::text", c.number, round/2)
	if _, err := c.conn.Prepare(ctx, "mine", sql); err != nil {
		return err
	}
	for n := 0; n < 5; n++ {
		expected := fmt.Sprintf("client %d.%d, %d, r%d", c.number, round/2, n, round)
		if err := c.text(ctx, expected, "mine", n, fmt.Sprintf("r%d", round)); err != nil {
			return err
		}
	}
	if round%2 == 1 { // the name comes again with another text
		return c.conn.Deallocate(ctx, "mine")
	}
	return nil
}

// All clients know the same texts, in an order of their own.
func (c *client) sharedTexts(ctx context.Context, round int) error {
	for _, n := range c.dice.Perm(24) {
		sql := fmt.Sprintf("SELECT 'text %d, ' || $1::text", n)
		word := fmt.Sprintf("%d-%d", c.number, c.dice.Int())
		if err := c.text(ctx, fmt.Sprintf("text %d, %s", n, word), sql, word); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) failures(ctx context.Context, round int) error {
	divide := "SELECT (100 / $1::int)::text"
	if err := c.text(ctx, "25", divide, 4); err != nil {
		return err
	}
	if err := c.fails(c.text(ctx, "", divide, 0), "22012"); err != nil {
		return err
	}
	if err := c.text(ctx, "20", divide, 5); err != nil {
		return err
	}
	if err := c.fails(c.text(ctx, "", "SELEKT $1::int", 1), "42601"); err != nil {
		return err
	}
	missing := fmt.Sprintf("SELECT word FROM missing_%d WHERE $1", c.number)
	return c.fails(c.text(ctx, "", missing, true), "42P01")
}

func (c *client) pipeline(ctx context.Context, round int) error {
	batch := &pgx.Batch{}
	var expected []string
	for n := 0; n < 20; n++ {
		word := fmt.Sprintf("%d-%d-%d", c.number, round, n)
		batch.Queue(fmt.Sprintf("SELECT 'piped %d, ' || $1::text", n%7), word)
		expected = append(expected, fmt.Sprintf("piped %d, %s", n%7, word))
	}
	results := c.conn.SendBatch(ctx, batch)
	for _, want := range expected {
		var heard string
		if err := results.QueryRow().Scan(&heard); err != nil {
			results.Close()
			return err
		}
		if err := c.same(want, heard); err != nil {
			results.Close()
			return err
		}
	}
	return results.Close()
}

// What stands behind the error is not run, and what stood before it is undone.
func (c *client) brokenPipeline(ctx context.Context, round int) error {
	batch := &pgx.Batch{}
	batch.Queue("SELECT 'first ' || $1::text", fmt.Sprint(c.number))
	batch.Queue("INSERT INTO driver_rows VALUES ($1, $2, 'lost')", c.number, round)
	batch.Queue("SELECT (1 / $1::int)::text", 0)
	batch.Queue("INSERT INTO driver_rows VALUES ($1, $2, 'lost')", c.number, round)
	results := c.conn.SendBatch(ctx, batch)
	defer results.Close()
	var heard string
	if err := results.QueryRow().Scan(&heard); err != nil {
		return err
	}
	if err := c.same(fmt.Sprint("first ", c.number), heard); err != nil {
		return err
	}
	if _, err := results.Exec(); err != nil {
		return err
	}
	if err := c.fails(results.QueryRow().Scan(&heard), "22012"); err != nil {
		return err
	}
	_, err := results.Exec()
	return c.fails(err, "22012")
}

func (c *client) transaction(ctx context.Context, round int) error {
	tx, err := c.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.Background())
	const asked = "SELECT pg_backend_pid()::text"
	var backend string
	if err := tx.QueryRow(ctx, asked).Scan(&backend); err != nil {
		return err
	}
	for n := 0; n < 3; n++ {
		if _, err := tx.Exec(ctx, "INSERT INTO driver_rows VALUES ($1, $2, $3)", c.number, round, "kept"); err != nil {
			return err
		}
		if err := c.text(ctx, backend, asked); err != nil {
			return err
		}
	}
	if c.dice.Intn(2) == 0 {
		if err := c.fails(c.text(ctx, "", "SELECT (1 / $1::int)::text", 0), "22012"); err != nil {
			return err
		}
		if err := c.fails(c.text(ctx, "", asked), "25P02"); err != nil {
			return err
		}
		return tx.Rollback(ctx)
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	kept.Add(3)
	return nil
}

func (c *client) copy(ctx context.Context, round int) error {
	const count = 200
	rows := pgx.CopyFromSlice(count, func(n int) ([]any, error) {
		return []any{c.number, round, fmt.Sprintf("copied %d", n)}, nil
	})
	copied, err := c.conn.CopyFrom(ctx, pgx.Identifier{"driver_rows"}, []string{"client", "round", "word"}, rows)
	if err != nil {
		return err
	}
	kept.Add(copied)
	if err := c.same(int64(count), copied); err != nil {
		return err
	}
	wrong := pgx.CopyFromSlice(2, func(n int) ([]any, error) {
		return []any{c.number, round, strings.Repeat("\x00", n)}, nil // a zero byte is no text
	})
	_, err = c.conn.CopyFrom(ctx, pgx.Identifier{"driver_rows"}, []string{"client", "round", "word"}, wrong)
	if err := c.fails(err, "22021"); err != nil {
		return err
	}
	return c.text(ctx, strconv.Itoa(count), "SELECT count(*)::text FROM driver_rows"+
		" WHERE client = $1 AND round = $2 AND word LIKE 'copied %'", c.number, round)
}

func (c *client) large(ctx context.Context, round int) error {
	word := fmt.Sprintf("%04d", c.number)
	const times = 100_000
	expected := strings.Repeat(word, times)
	if err := c.text(ctx, expected, "SELECT repeat($1::text, $2::int)", word, times); err != nil {
		return err
	}
	rows, err := c.conn.Query(ctx, "SELECT $1::text || n FROM generate_series(1, $2::int) n", word, 3000)
	if err != nil {
		return err
	}
	defer rows.Close()
	for n := 1; rows.Next(); n++ {
		var heard string
		if err := rows.Scan(&heard); err != nil {
			return err
		}
		if err := c.same(word+strconv.Itoa(n), heard); err != nil {
			return err
		}
	}
	return rows.Err()
}

// The request is cancelled, not the connection: pgx's own deadlines would close it. In a
// transaction, so that the client has a server to be cancelled on.
func (c *client) cancel(ctx context.Context, round int) error {
	if c.number%5 != 0 || round > 0 {
		return nil
	}
	tx, err := c.conn.Begin(ctx)
	if err != nil {
		return err
	}
	heard := make(chan error, 1)
	go func() {
		_, err := tx.Exec(ctx, "SELECT pg_sleep($1::float8)", 60.0)
		heard <- err
	}()
	for { // it may not have begun: ask again
		select {
		case err := <-heard:
			if err := c.fails(err, "57014"); err != nil {
				return err
			}
			if err := tx.Rollback(ctx); err != nil {
				return err
			}
			c.conn.Exec(ctx, "SELECT 1") // which a late request may hit
			return c.text(ctx, "calm", "SELECT 'calm'")
		case <-time.After(100 * time.Millisecond):
			if err := c.conn.PgConn().CancelRequest(ctx); err != nil {
				return err
			}
		}
	}
}

// Another connection of its own is ended by the pid that the driver was told.
func (c *client) terminate(ctx context.Context, round int) error {
	if c.number%5 != 1 || round > 0 {
		return nil
	}
	other, err := pgx.ConnectConfig(ctx, c.conn.Config())
	if err != nil {
		return err
	}
	defer other.Close(ctx)
	if _, err := c.conn.Exec(ctx, "SELECT pg_terminate_backend($1)", int32(other.PgConn().PID())); err != nil {
		return err
	}
	_, err = other.Exec(ctx, "SELECT 1")
	if err := c.fails(err, "57P01"); err != nil {
		return err
	}
	return c.same(true, other.IsClosed())
}
