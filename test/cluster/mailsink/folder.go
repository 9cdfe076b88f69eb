// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mailsink

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxMails is how many mails are kept.
const MaxMails = 10_000

// unfinished begins the name of a file that is being written.
const unfinished = ".new-"

// folder is where mails are kept. One process has it.
type folder struct {
	path string
	most int

	mu sync.Mutex
	// kept are the names of the mails, the oldest first, and last is the number of the
	// last one, also where that is gone.
	kept []string
	last int
}

// open makes the folder where it is missing, and removes what a killed sink left
// unfinished.
func open(path string) (*folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), unfinished) && entry.Type().IsRegular() {
			if err := os.Remove(filepath.Join(path, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	f := &folder{path: path, most: MaxMails}
	for _, n := range numbered(entries) {
		f.kept, f.last = append(f.kept, n.name), n.number
	}
	return f, nil
}

// put keeps a mail, and returns its file's name.
func (f *folder) put(at time.Time, to string, mail []byte) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := fileName(at, to, f.last+1)
	if err := f.write(name, mail); err != nil {
		return "", fmt.Errorf("keeping a mail: %w", err)
	}
	f.last++
	f.kept = append(f.kept, name)
	for len(f.kept) > f.most {
		if err := os.Remove(filepath.Join(f.path, f.kept[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("removing the oldest mail: %w", err)
		}
		f.kept = f.kept[1:]
	}
	return name, nil
}

// write makes a file that is there whole or not at all.
func (f *folder) write(name string, content []byte) (err error) {
	temporary, err := os.CreateTemp(f.path, unfinished+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name()) // the next start removes it, too
		}
	}()
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), filepath.Join(f.path, name))
}

type numberedFile struct {
	name   string
	at     time.Time
	number int
}

// numbered are the mails among a folder's entries, in the order of their numbers.
func numbered(entries []fs.DirEntry) (list []numberedFile) {
	for _, entry := range entries {
		if at, number, ok := parseName(entry.Name()); ok && entry.Type().IsRegular() {
			list = append(list, numberedFile{entry.Name(), at, number})
		}
	}
	slices.SortFunc(list, func(a, b numberedFile) int {
		return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.name, b.name))
	})
	return list
}
