// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	stateFile = "cluster.json" // also the mark by which a cluster's folder is known

	markVersion = "sim.sluice.dev/v1alpha1"
	markKind    = "EmbeddedCluster"
	// longestMark is far above what a mark needs, in bytes.
	longestMark = 64 << 10
)

// state is what a cluster remembers from one start to the next. Its version and
// kind make the file a mark: others have a cluster.json too.
type state struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Temporary is a folder that we have made and named, and so may sweep up.
	Temporary bool  `json:"temporary,omitempty"`
	Ports     ports `json:"ports"`
}

// readMark returns the state in dir. The error wraps fs.ErrNotExist where there
// is none; any other one means that the folder must not be taken for a cluster's.
func readMark(dir string) (state, error) {
	path := filepath.Join(dir, stateFile)
	info, err := os.Lstat(path)
	if err != nil {
		return state{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > longestMark {
		return state{}, foreign(errors.New("it is no file of a few lines"))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return state{}, err
	}
	return parseMark(content)
}

func parseMark(content []byte) (state, error) {
	var s state
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return state{}, foreign(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return state{}, foreign(errors.New("something follows the object"))
	}
	if s.APIVersion != markVersion || s.Kind != markKind {
		return state{}, foreign(fmt.Errorf("it is apiVersion %q, kind %q, not %s, %s", s.APIVersion, s.Kind, markVersion, markKind))
	}
	return s, nil
}

func foreign(reason error) error {
	return fmt.Errorf("its %s is no cluster's, or one's of another version (%w); "+
		"name another folder, or remove this one by hand if it was a cluster's", stateFile, reason)
}

func writeMark(dir string, s state) error {
	s.APIVersion, s.Kind = markVersion, markKind
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, stateFile), append(content, '\n'))
}
