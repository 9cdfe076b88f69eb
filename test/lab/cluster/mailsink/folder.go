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

// MaxMails is the number of mails that are kept.
const MaxMails = 10_000

// unfinished is the prefix of a file that is being written.
const unfinished = ".new-"

// mailFolder stores mails. Only one process may use it.
type mailFolder struct {
	path     string
	maxMails int

	mu sync.Mutex
	// files holds the names of the mails, the oldest first. lastNumber is the number of the
	// last mail, also after its removal.
	files      []string
	lastNumber int
}

// openMailFolder creates the folder if necessary, and removes the unfinished files of a
// killed sink.
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

// store writes a mail and returns the name of its file.
func (f *mailFolder) store(at time.Time, to string, mail []byte) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := fileName(at, to, f.lastNumber+1)
	if err := f.write(name, mail); err != nil {
		return "", fmt.Errorf("store mail: %w", err)
	}
	f.lastNumber++
	f.files = append(f.files, name)
	for len(f.files) > f.maxMails {
		if err := os.Remove(filepath.Join(f.path, f.files[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("remove the oldest mail: %w", err)
		}
		f.files = f.files[1:]
	}
	return name, nil
}

// write writes a file atomically.
func (f *mailFolder) write(name string, content []byte) (err error) {
	temporary, err := os.CreateTemp(f.path, unfinished+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name()) // otherwise the next start removes it
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

// numberedFiles returns the mails among a folder's entries, in the order of their numbers.
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

// maxRecipientInName limits the part of an address in a file name.
const maxRecipientInName = 100

// nameFormat matches the file names of mails.
var nameFormat = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)-(.{1,100})-([1-9]\d{0,17})\.eml$`)

// fileName returns the file name of a mail, without characters that are special to a shell
// or a file system.
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

// parseName returns the time and number in a file name; ok is false if the file is no mail.
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
