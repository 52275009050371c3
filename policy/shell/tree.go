// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// tree is where the nodes of one text lie that are made without the parser. They are
// used again for the next text: to allocate them one by one takes as long as to read it.
type tree struct {
	stmts    shelf[syntax.Stmt]
	calls    shelf[syntax.CallExpr]
	binaries shelf[syntax.BinaryCmd]
	fors     shelf[syntax.ForClause]
	iters    shelf[syntax.WordIter]
	whiles   shelf[syntax.WhileClause]
	ifs      shelf[syntax.IfClause]
	assigns  shelf[syntax.Assign]
	redirs   shelf[syntax.Redirect]
	words    shelf[syntax.Word]
	lits     shelf[syntax.Lit]
	singles  shelf[syntax.SglQuoted]
	doubles  shelf[syntax.DblQuoted]
	params   shelf[syntax.ParamExp]
	substs   shelf[syntax.CmdSubst]

	stmtLists   stacked[*syntax.Stmt]
	wordLists   stacked[*syntax.Word]
	partLists   stacked[syntax.WordPart]
	assignLists stacked[*syntax.Assign]
	redirLists  stacked[*syntax.Redirect]
}

var trees = sync.Pool{New: func() any { return new(tree) }}

// free gives the nodes back. Nothing of them may be used any more.
func (t *tree) free() {
	t.stmts.clear()
	t.calls.clear()
	t.binaries.clear()
	t.fors.clear()
	t.iters.clear()
	t.whiles.clear()
	t.ifs.clear()
	t.assigns.clear()
	t.redirs.clear()
	t.words.clear()
	t.lits.clear()
	t.singles.clear()
	t.doubles.clear()
	t.params.clear()
	t.substs.clear()
	t.stmtLists.clear()
	t.wordLists.clear()
	t.partLists.clear()
	t.assignLists.clear()
	t.redirLists.clear()
	trees.Put(t)
}

// shelf has things of one kind, which stay where they are.
type shelf[T any] struct {
	boards [][]T
	board  int // that is being filled
	used   int // of it
}

// perBoard is how many things lie on a board; most texts have fewer of each.
const perBoard = 32

// mostBoards bounds what is kept for the next text.
const mostBoards = 128

// one is a new thing.
func (s *shelf[T]) one() *T { return &s.some(1)[0] }

// some are n new things in a row.
func (s *shelf[T]) some(n int) []T {
	for ; s.board < len(s.boards); s.board, s.used = s.board+1, 0 {
		if b := s.boards[s.board]; n <= len(b)-s.used {
			s.used += n
			return b[s.used-n : s.used : s.used]
		}
	}
	s.boards, s.used = append(s.boards, make([]T, max(n, perBoard))), n
	return s.boards[s.board][:n:n]
}

// clear takes everything off; what was there would keep the text.
func (s *shelf[T]) clear() {
	if len(s.boards) > mostBoards {
		*s = shelf[T]{}
		return
	}
	for i := 0; i < s.board; i++ {
		clear(s.boards[i])
	}
	if s.board < len(s.boards) {
		clear(s.boards[s.board][:s.used])
	}
	s.board, s.used = 0, 0
}

// stacked makes lists that may have others begun within them.
type stacked[T any] struct {
	open []T // of the lists that are not complete
	done shelf[T]
}

func (s *stacked[T]) begin() int { return len(s.open) }

func (s *stacked[T]) add(t T) { s.open = append(s.open, t) }

// end is what was added since begin; nil is nothing.
func (s *stacked[T]) end(begin int) []T {
	n := len(s.open) - begin
	if n == 0 {
		return nil
	}
	list := s.done.some(n)
	copy(list, s.open[begin:])
	clear(s.open[begin:])
	s.open = s.open[:begin]
	return list
}

func (s *stacked[T]) clear() {
	clear(s.open)
	s.open = s.open[:0]
	s.done.clear()
}
