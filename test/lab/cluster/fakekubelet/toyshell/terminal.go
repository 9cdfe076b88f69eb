// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package toyshell

import (
	"bytes"
	"errors"
	"io"

	"golang.org/x/term"
)

const (
	ctrlC = 0x03
	// clearLine are the keys that empty the line and read the next: to its end, delete to
	// its start, enter.
	clearLine = "\x05\x15\r"
)

// terminal echoes and edits lines, since a simulated container has no pseudo-terminal. The
// user's own terminal is in raw mode.
type terminal struct {
	editor *term.Terminal
	keys   *keys
}

// openTerminal makes the session's input and output a terminal.
func (s *session) openTerminal(streams Streams) {
	k := &keys{typed: make(chan []byte), done: s.ctx.Done()}
	go k.read(streams.In)
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{k, streams.Out}, "")
	s.terminal = &terminal{editor: editor, keys: k}
	s.out, s.err = editor, editor // it writes \r\n
	if streams.Resize == nil {
		return
	}
	go func() {
		for size := range streams.Resize {
			if size.Width > 0 && size.Height > 0 {
				_ = editor.SetSize(size.Width, size.Height) // the user may have closed it
			}
		}
	}()
}

// runTerminal runs the lines that the user types until exit or Ctrl-D.
func (s *session) runTerminal() {
	for !s.over() {
		s.terminal.editor.SetPrompt(s.container.User + "@" + s.container.Hostname + ":" + s.dir + "# ")
		line, err := s.terminal.editor.ReadLine()
		if err != nil && !errors.Is(err, term.ErrPasteIndicator) {
			return
		}
		s.runScript(line)
		s.limits.interrupted = false
	}
	s.terminal.editor.SetPrompt("")
}

// typed returns the channel of what the user types, or nil without a terminal.
func (s *session) typed() <-chan []byte {
	if s.terminal == nil {
		return nil
	}
	return s.terminal.keys.typed
}

// receive keeps typed keys for the next line. Ctrl-C and the end of the input interrupt the
// line that runs.
func (s *session) receive(typed []byte, open bool) {
	if !open || bytes.IndexByte(typed, ctrlC) >= 0 {
		s.limits.interrupted = true
		return
	}
	s.terminal.keys.keep(typed)
}

// keys passes on what the user types, to one reader at a time.
type keys struct {
	typed   chan []byte
	done    <-chan struct{}
	pending []byte
}

func (k *keys) read(in io.Reader) {
	defer close(k.typed)
	for {
		buffer := make([]byte, 1024)
		n, err := in.Read(buffer)
		if n > 0 {
			select {
			case k.typed <- buffer[:n]:
			case <-k.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Read returns typed keys to the line editor, which would end the session at Ctrl-C: it
// gets the keys that empty the line instead.
func (k *keys) Read(buffer []byte) (int, error) {
	if len(k.pending) == 0 {
		select {
		case typed, open := <-k.typed:
			if !open {
				return 0, io.EOF
			}
			k.keep(typed)
		case <-k.done:
			return 0, io.EOF
		}
	}
	n := copy(buffer, k.pending)
	k.pending = k.pending[n:]
	return n, nil
}

// keep adds typed keys to those that the line editor reads next.
func (k *keys) keep(typed []byte) {
	for _, key := range typed {
		if key == ctrlC {
			k.pending = append(k.pending, clearLine...)
		} else if len(k.pending) < maxText {
			k.pending = append(k.pending, key)
		}
	}
}
