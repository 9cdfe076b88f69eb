// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The content is a line with the version and the checksum of all that follows, and the
// state as indented JSON.
const (
	version = 1
	header  = "sluice journal"
	// maxBytes bounds what is read: sixteen GPUs of eight instances are 30 KiB.
	maxBytes = 1 << 20
)

// state is the whole content.
type state struct {
	Node string `json:"node"`
	Boot string `json:"boot"`
	// Doubt is why the content before this one was not believed.
	Doubt string           `json:"doubt,omitempty"`
	GPUs  map[string]entry `json:"gpus"`
}

// entry is one GPU.
type entry struct {
	Change    *Change    `json:"change,omitempty"`
	Instances []Instance `json:"instances,omitempty"`
}

func (s *state) empty() bool { return s.Doubt == "" && len(s.GPUs) == 0 }

func (s *state) format() ([]byte, error) {
	body, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, err
	}
	content := slices.Concat(firstLine(body), body)
	if _, err := parse(content); err != nil {
		return nil, fmt.Errorf("what was to be written is not valid: %w", err)
	}
	return content, nil
}

func firstLine(body []byte) []byte {
	return fmt.Appendf(nil, "%s %d sha256:%x\n", header, version, sha256.Sum256(body))
}

// parse reads a content back. Its errors complete "it cannot be believed: ".
func parse(content []byte) (state, error) {
	if len(content) > maxBytes {
		return state{}, fmt.Errorf("it has %d bytes, at most %d are expected", len(content), maxBytes)
	}
	first, body, ok := bytes.Cut(content, []byte("\n"))
	if !ok || !strings.HasPrefix(string(first), header+" ") {
		return state{}, errors.New("it does not begin like a journal, or is cut off")
	}
	if found, ours := string(first), fmt.Sprintf("%s %d ", header, version); !strings.HasPrefix(found, ours) {
		return state{}, fmt.Errorf("it was written by another version of Sluice: %.40q, expected %q", found, ours)
	}
	if !bytes.Equal(slices.Concat(first, []byte("\n")), firstLine(body)) {
		return state{}, errors.New("its checksum is wrong: it is damaged or cut off")
	}
	var s state
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return state{}, fmt.Errorf("it is not understood: %w", err)
	}
	if err := s.check(); err != nil {
		return state{}, err
	}
	return s, nil
}

// check is about contents with a right checksum that no Sluice has written.
func (s *state) check() error {
	if s.Node == "" || s.Boot == "" || s.GPUs == nil {
		return errors.New("it lacks the node, the boot or the GPUs")
	}
	for gpu, e := range s.GPUs {
		if gpu == "" {
			return errors.New("it has a GPU without UUID")
		}
		if e.Change != nil && !slices.Contains(acts, e.Change.Next.Act) {
			return fmt.Errorf("GPU %s: it has the unknown call %q", gpu, e.Change.Next.Act)
		}
		for i, it := range e.Instances {
			if it.Profile == "" || it.Start < 0 {
				return fmt.Errorf("GPU %s: instance %d has no place", gpu, it.ID)
			}
			if slices.ContainsFunc(e.Instances[:i], func(other Instance) bool {
				return other.ID == it.ID || other.UUID != "" && other.UUID == it.UUID
			}) {
				return fmt.Errorf("GPU %s: instance %d is there twice", gpu, it.ID)
			}
		}
	}
	return nil
}
