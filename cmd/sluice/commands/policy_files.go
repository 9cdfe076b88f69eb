// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// existingFiles is what becomes of files that exist.
type existingFiles int

const (
	// refuseExisting: no file is written if one of them exists.
	refuseExisting existingFiles = iota
	// keepEqual: no file is written if one of them exists with another content. Those with the same one stay.
	keepEqual
	// replaceExisting: they are replaced. Those with the same content stay.
	replaceExisting
)

// writePolicyFiles writes files to a directory, which it creates, and returns the paths of those that it wrote, sorted. The error
// names the files that exist, if these must not, and what to do.
func writePolicyFiles(directory string, files map[string]string, existing existingFiles, whatToDo string) ([]string, error) {
	var changed, refused []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(directory, name)
		_, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			changed = append(changed, name)
			continue
		}
		if err != nil {
			return nil, err
		}
		if existing != refuseExisting {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if string(text) == files[name] {
				continue
			}
		}
		if existing != replaceExisting {
			refused = append(refused, path)
		}
		changed = append(changed, name)
	}
	if len(refused) > 0 {
		verb := " exists"
		if len(refused) > 1 {
			verb = " exist"
		}
		if existing == keepEqual {
			verb += " with another content"
		}
		return nil, fmt.Errorf("%s%s; nothing was written: %s", strings.Join(refused, ", "), verb, whatToDo)
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if existing == refuseExisting {
		mode |= os.O_EXCL
	}
	written := []string{}
	for _, name := range changed {
		path := filepath.Join(directory, name)
		target, err := os.OpenFile(path, mode, 0o644)
		if err != nil {
			return written, err
		}
		_, err = target.WriteString(files[name])
		if err = errors.Join(err, target.Close()); err != nil {
			return written, err
		}
		written = append(written, path)
	}
	return written, nil
}
