// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"strings"

	"sluice.dev/gpuagent/procfs"
)

// ErrNotFound is that no process of the device plugin runs that could be told.
var ErrNotFound = errors.New("no process of the device plugin was found")

// Finder finds the device plugin's processes.
type Finder struct {
	// Proc is the root of the host's procfs.
	Proc string
	// Command is how the plugin's command line begins, the program without its folder.
	Command string
}

// HangUp has each of the plugin's processes enumerate its devices again, and returns
// how many there are. [ErrNotFound] where there is none, or none that is ready for
// it: try again then.
func (f *Finder) HangUp() (int, error) {
	names, err := procfs.Names(f.Proc)
	if err != nil {
		return 0, err
	}
	told := 0
	var notReady []string
	var errs []error
	for _, name := range names {
		switch done, deaf, err := f.tell(name); {
		case done:
			told++
		case deaf:
			notReady = append(notReady, name)
		case err != nil:
			errs = append(errs, fmt.Errorf("process %s: %w", name, err))
		}
	}
	switch {
	case len(errs) > 0:
		return told, fmt.Errorf("telling the device plugin to look again: %w", errors.Join(errs...))
	case told > 0:
		return told, nil
	case len(notReady) > 0:
		return 0, fmt.Errorf("%w: process %s does not catch SIGHUP (yet)", ErrNotFound, strings.Join(notReady, ", "))
	}
	return 0, fmt.Errorf("%w below %s: none has a command line that begins with %q", ErrNotFound, f.Proc, f.Command)
}

// tell sends the signal to one process if it is the plugin's. One that ends meanwhile
// is none.
func (f *Finder) tell(name string) (done, deaf bool, err error) {
	p, err := procfs.Open(f.Proc, name)
	if err != nil {
		return false, false, nil
	}
	defer p.Close()
	words, err := p.Command()
	if err != nil || !begins(words, strings.Fields(f.Command)) {
		return false, false, nil
	}
	ready, err := p.CatchesHangup()
	if err != nil || !ready {
		return false, err == nil, ignoreEnded(err)
	}
	err = p.HangUp()
	return err == nil, false, ignoreEnded(err)
}

func begins(words, with []string) bool {
	if len(with) == 0 || len(words) < len(with) {
		return false
	}
	for i := range with {
		if words[i] != with[i] {
			return false
		}
	}
	return true
}
