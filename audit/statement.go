// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"database/sql"
	"sync"
)

// known are the statements that the writer's one connection has been asked for
// often: to read one costs more than to carry it out. All texts are this package's.
// SQLite reads a statement again by itself when the schema has changed, and each
// commit looks at the schema (checkSchema).
type known struct {
	mu    sync.Mutex
	asked map[string]int
	of    map[string]*sql.Stmt
	want  []string
}

// often is from when on a statement is kept: a caisson run, which commits twice,
// would pay for what it never uses.
const often = 3

// find returns the statement of a text if it is kept, and counts the question.
func (k *known) find(query string) *sql.Stmt {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.of[query]; s != nil {
		return s
	}
	if k.asked == nil {
		k.asked, k.of = map[string]int{}, map[string]*sql.Stmt{}
	}
	if k.asked[query]++; k.asked[query] == often {
		k.want = append(k.want, query)
	}
	return nil
}

// prepare keeps what was asked for often. The caller does not have the connection.
// What cannot be prepared is read each time, as before. They end with the database.
func (k *known) prepare(ctx context.Context, db *sql.DB) {
	k.mu.Lock()
	want := k.want
	k.want = nil
	k.mu.Unlock()
	for _, query := range want {
		s, err := db.PrepareContext(ctx, query)
		if err != nil {
			continue
		}
		k.mu.Lock()
		k.of[query] = s
		k.mu.Unlock()
	}
}

// writing is a transaction of the writer's, with the statements that are kept.
type writing struct {
	*sql.Tx
	known *known
}

func (w *writing) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if s := w.known.find(query); s != nil {
		return w.Tx.StmtContext(ctx, s), nil
	}
	return w.Tx.PrepareContext(ctx, query)
}

func (w *writing) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if s := w.known.find(query); s != nil {
		return w.Tx.StmtContext(ctx, s).ExecContext(ctx, args...)
	}
	return w.Tx.ExecContext(ctx, query, args...)
}

func (w *writing) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s := w.known.find(query); s != nil {
		return w.Tx.StmtContext(ctx, s).QueryContext(ctx, args...)
	}
	return w.Tx.QueryContext(ctx, query, args...)
}

func (w *writing) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if s := w.known.find(query); s != nil {
		return w.Tx.StmtContext(ctx, s).QueryRowContext(ctx, args...)
	}
	return w.Tx.QueryRowContext(ctx, query, args...)
}
