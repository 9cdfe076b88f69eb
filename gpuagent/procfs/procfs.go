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

// Running is a process that runs.
type Running struct {
	// Command is its command line, the program without its folder.
	Command []string
	// CGroup is the text of its cgroup file; empty where it cannot be read.
	CGroup string
}

// Commands are the processes that run and have a command line. Those that end meanwhile
// are left out.
func Commands(root string) ([]Running, error) {
	names, err := Names(root)
	if err != nil {
		return nil, err
	}
	var commands []Running
	for _, name := range names {
		p, err := Open(root, name)
		if err != nil {
			continue
		}
		if words, err := p.Command(); err == nil && len(words) > 0 {
			cgroup, _ := p.read("cgroup") // of none that is known, then
			commands = append(commands, Running{Command: words, CGroup: string(cgroup)})
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
