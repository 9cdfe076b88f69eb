// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	journalFileName = "journal"
	journalTempName = "journal.new"
	journalLockName = "lock"
)

// JournalDir stores a journal in a directory of a local file system and locks it against other
// processes.
type JournalDir struct {
	path string
	lock *os.File

	// beforeStep is called before each step of a write and may fail it: tests crash there.
	beforeStep func(step string) error
}

var _ JournalStore = (*JournalDir)(nil)

// OpenJournalDir opens or creates the directory and locks it until Close. Two agents on one node,
// as in a rolling update, would count each other's instances as foreign.
func OpenJournalDir(path string) (*JournalDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, journalLockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("open the journal: another agent uses %s; wait until it ends", path)
		}
		return nil, fmt.Errorf("open the journal: lock %s: %w", lock.Name(), err)
	}
	return &JournalDir{path: path, lock: lock, beforeStep: func(string) error { return nil }}, nil
}

// Close unlocks the directory.
func (d *JournalDir) Close() error { return d.lock.Close() }

// Load implements [JournalStore].
func (d *JournalDir) Load() ([]byte, error) {
	file, err := os.Open(d.filePath(journalFileName))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// One byte above the limit shows that the file is too long.
	return io.ReadAll(io.LimitReader(file, maxJournalBytes+1))
}

// Replace implements [JournalStore]. It syncs a new file, renames it over the old one and syncs the
// directory, so that the name is as durable as the content.
func (d *JournalDir) Replace(content []byte) error {
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"write", func() error { return d.writeTemp(content) }},
		{"rename", func() error { return os.Rename(d.filePath(journalTempName), d.filePath(journalFileName)) }},
		{"sync", d.syncDir},
	} {
		if err := d.beforeStep(step.name); err != nil {
			return err
		}
		if err := step.do(); err != nil {
			return err
		}
	}
	return nil
}

// writeTemp writes the file to rename. It overwrites what a crash has left of an earlier one.
func (d *JournalDir) writeTemp(content []byte) error {
	file, err := os.OpenFile(d.filePath(journalTempName), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = d.beforeStep("sync file")
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func (d *JournalDir) syncDir() error {
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// SetAside implements [JournalStore]. The name depends on the content, so that repeated calls keep
// one copy.
func (d *JournalDir) SetAside() (string, error) {
	content, err := d.Load()
	if err != nil {
		return "", err
	}
	kept := d.filePath(fmt.Sprintf("%s.unbelieved-%.4x", journalFileName, sha256.Sum256(content)))
	if err := os.Link(d.filePath(journalFileName), kept); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return kept, d.syncDir()
}

func (d *JournalDir) filePath(file string) string { return filepath.Join(d.path, file) }

// The content is a line with the version and a checksum, followed by the state as indented JSON.
const (
	journalVersion = 1
	journalHeader  = "sluice journal"
	// maxJournalBytes bounds the file. Sixteen GPUs with eight instances each need 30 KiB.
	maxJournalBytes = 1 << 20
)

// journalState is the whole content.
type journalState struct {
	Node string `json:"node"`
	Boot string `json:"boot"`
	// Load is the load of the driver within the boot; "" if unknown.
	Load string `json:"load,omitempty"`
	// UntrustedReason is why the former content was unusable.
	UntrustedReason string                  `json:"untrustedReason,omitempty"`
	GPUs            map[string]journalEntry `json:"gpus"`
}

// journalEntry is one GPU.
type journalEntry struct {
	Change    *PendingChange  `json:"change,omitempty"`
	Instances []OwnedInstance `json:"instances,omitempty"`
}

func (s *journalState) isEmpty() bool { return s.UntrustedReason == "" && len(s.GPUs) == 0 }

func (s *journalState) format() ([]byte, error) {
	body, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, err
	}
	content := slices.Concat(checksumLine(body), body)
	if _, err := parseJournal(content); err != nil {
		return nil, fmt.Errorf("the new content is invalid: %w", err)
	}
	return content, nil
}

func checksumLine(body []byte) []byte {
	return fmt.Appendf(nil, "%s %d sha256:%x\n", journalHeader, journalVersion, sha256.Sum256(body))
}

// parseJournal parses content. Its errors describe the file: "its checksum is wrong".
func parseJournal(content []byte) (journalState, error) {
	if len(content) > maxJournalBytes {
		return journalState{}, fmt.Errorf("it has %d bytes; the limit is %d", len(content), maxJournalBytes)
	}
	first, body, ok := bytes.Cut(content, []byte("\n"))
	if !ok || !strings.HasPrefix(string(first), journalHeader+" ") {
		return journalState{}, errors.New("it has no journal header, or is truncated")
	}
	if found, ours := string(first), fmt.Sprintf("%s %d ", journalHeader, journalVersion); !strings.HasPrefix(found, ours) {
		return journalState{}, fmt.Errorf("it was written by another version of Sluice: %.40q, expected %q", found, ours)
	}
	if !bytes.Equal(slices.Concat(first, []byte("\n")), checksumLine(body)) {
		return journalState{}, errors.New("its checksum is wrong: it is damaged or truncated")
	}
	var s journalState
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return journalState{}, fmt.Errorf("it cannot be parsed: %w", err)
	}
	if err := s.validate(); err != nil {
		return journalState{}, err
	}
	return s, nil
}

// validate rejects content with a correct checksum that Sluice never writes.
func (s *journalState) validate() error {
	if s.Node == "" || s.Boot == "" || s.GPUs == nil {
		return errors.New("it lacks the node, the boot or the GPUs")
	}
	for gpu, e := range s.GPUs {
		if gpu == "" {
			return errors.New("it has a GPU without UUID")
		}
		if e.Change != nil && !slices.Contains(operations, e.Change.Next.Operation) {
			return fmt.Errorf("GPU %s: the call %q is unknown", gpu, e.Change.Next.Operation)
		}
		for i, it := range e.Instances {
			if it.Profile == "" || it.Start < 0 {
				return fmt.Errorf("GPU %s: instance %d has no place", gpu, it.ID)
			}
			if slices.ContainsFunc(e.Instances[:i], func(other OwnedInstance) bool {
				return other.ID == it.ID || other.UUID != "" && other.UUID == it.UUID
			}) {
				return fmt.Errorf("GPU %s: instance %d is listed twice", gpu, it.ID)
			}
		}
	}
	return nil
}
