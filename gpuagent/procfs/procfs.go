// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Names are the names of the folders of the processes that run.
func Names(root string) (names []string, err error) {
	folder, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	defer folder.Close()
	all, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	for _, name := range all {
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// Commands are the command lines of the processes that run, their programs without the
// folders. Those that end meanwhile are left out.
func Commands(root string) ([][]string, error) {
	names, err := Names(root)
	if err != nil {
		return nil, err
	}
	var commands [][]string
	for _, name := range names {
		p, err := Open(root, name)
		if err != nil {
			continue
		}
		if words, err := p.Command(); err == nil && len(words) > 0 {
			commands = append(commands, words)
		}
		p.Close()
	}
	return commands, nil
}

// BootID is the identity of the machine's present boot.
func BootID(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, "sys", "kernel", "random", "boot_id"))
	if err != nil {
		return "", fmt.Errorf("which boot this is: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	if id == "" {
		return "", errors.New("which boot this is: boot_id is empty")
	}
	return id, nil
}
