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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MaxMails is how many mails are kept.
const MaxMails = 10_000

// unfinished begins the name of a file that is being written.
const unfinished = ".new-"

// mailFolder is where mails are kept. One process has it.
type mailFolder struct {
	path     string
	maxMails int

	mu sync.Mutex
	// files are the names of the mails, the oldest first, and last is the number of the
	// last one, also where that is gone.
	files      []string
	lastNumber int
}

// openMailFolder makes the folder where it is missing, and removes what a killed sink left
// unfinished.
func openMailFolder(path string) (*mailFolder, error) {
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
	f := &mailFolder{path: path, maxMails: MaxMails}
	for _, n := range numberedFiles(entries) {
		f.files, f.lastNumber = append(f.files, n.name), n.number
	}
	return f, nil
}

// store keeps a mail, and returns its file's name.
func (f *mailFolder) store(at time.Time, to string, mail []byte) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := fileName(at, to, f.lastNumber+1)
	if err := f.write(name, mail); err != nil {
		return "", fmt.Errorf("keeping a mail: %w", err)
	}
	f.lastNumber++
	f.files = append(f.files, name)
	for len(f.files) > f.maxMails {
		if err := os.Remove(filepath.Join(f.path, f.files[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("removing the oldest mail: %w", err)
		}
		f.files = f.files[1:]
	}
	return name, nil
}

// write makes a file that is there whole or not at all.
func (f *mailFolder) write(name string, content []byte) (err error) {
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

// numberedFiles are the mails among a folder's entries, in the order of their numbers.
func numberedFiles(entries []fs.DirEntry) (list []numberedFile) {
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

// maxRecipientInName is as much of an address as a file's name has.
const maxRecipientInName = 100

// nameFormat is that of a mail's file.
var nameFormat = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)-(.{1,100})-([1-9]\d{0,17})\.eml$`)

// fileName is that of a mail's file: no character in it means anything to a shell or
// to a file system.
func fileName(at time.Time, to string, number int) string {
	return fmt.Sprintf("%s-%s-%d.eml", at.UTC().Format(time.RFC3339), sanitizeRecipient(to), number)
}

func sanitizeRecipient(to string) string {
	to = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("@._+-", r):
			return r
		}
		return '_'
	}, to)
	if to == "" {
		return "nobody"
	}
	return to[:min(len(to), maxRecipientInName)]
}

// parseName takes a file's name apart; false where it is no mail's.
func parseName(name string) (at time.Time, number int, ok bool) {
	parts := nameFormat.FindStringSubmatch(name)
	if parts == nil {
		return time.Time{}, 0, false
	}
	at, err := time.Parse(time.RFC3339, parts[1])
	if err != nil {
		return time.Time{}, 0, false
	}
	number, err = strconv.Atoi(parts[3])
	return at, number, err == nil
}
