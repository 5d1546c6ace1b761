package table

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirlabs/weir/internal/plan"
)

// atOnce is how many entries of a table are looked at under one lock, and
// pageWork how many for one page.
const (
	atOnce   = 1024
	pageWork = 64 * atOnce
)

// List gives a page of the keys of several tables, as weir.Lister says. look
// must call its func with the table of an index from 0 to tables-1, under the
// table's lock.
//
// Entries are visited by number, which an entry keeps for as long as it is
// there: so each is listed once, however many others come and go.
func List(tables int, look func(i int, do func(*Table)), prefix, cursor string, max int) (keys []plan.Key, next string, err error) {
	if max < 1 {
		return nil, "", fmt.Errorf("at most %d keys were asked for; ask for 1 or more", max)
	}
	at, from, err := readCursor(cursor, tables)
	if err != nil {
		return nil, "", err
	}
	for work := 0; at < tables; {
		if len(keys) == max || work >= pageWork {
			return keys, fmt.Sprintf("%d.%d", at, from), nil
		}
		var used uint32
		look(at, func(t *Table) {
			used = t.used
			end := min(used, from+atOnce)
			for ; from < end && len(keys) < max; from++ {
				if e := t.Entry(from); e.Key.Valid() && strings.HasPrefix(e.Key.String(), prefix) {
					keys = append(keys, e.Key)
				}
				work++
			}
		})
		if from >= used {
			at, from = at+1, 0
		}
	}
	return keys, "", nil
}

// readCursor gives the table and the entry at which a page begins.
func readCursor(cursor string, tables int) (at int, from uint32, err error) {
	if cursor == "" {
		return 0, 0, nil
	}
	a, b, _ := strings.Cut(cursor, ".")
	i, err1 := strconv.Atoi(a)
	n, err2 := strconv.ParseUint(b, 10, 32)
	if err1 != nil || err2 != nil || i < 0 || i >= tables {
		return 0, 0, fmt.Errorf("the cursor %q is none that ListKeys has given", cursor)
	}
	return i, uint32(n), nil
}
