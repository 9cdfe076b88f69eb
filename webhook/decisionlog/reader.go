// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decisionlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxLineBytes is the largest length of a line that a Reader reads: an update of the largest object that the API server accepts, with
// its project. Longer lines are skipped.
const MaxLineBytes = 16 << 20

// Skipped counts what a Reader skipped.
type Skipped struct {
	// Other are lines that are no records, such as those of a log.
	Other int `json:"other"`
	// Broken are lines that are no JSON, or records with wrong fields. Incomplete is the last line, if it does not end.
	Broken     int `json:"broken"`
	Incomplete int `json:"incomplete"`
	// TooLong are lines longer than [MaxLineBytes].
	TooLong int `json:"tooLong"`
	// Newer are records of a version that this program does not know.
	Newer int `json:"newer"`
}

// Reader reads the records of a stream. It never fails for what it reads.
type Reader struct {
	// Skipped is what was skipped until now.
	Skipped Skipped

	lines *bufio.Reader
	line  []byte
}

// gzipMagic starts a compressed file.
var gzipMagic = []byte{0x1f, 0x8b}

// NewReader returns a reader of lines of JSON, which gzip may have compressed.
func NewReader(source io.Reader) (*Reader, error) {
	buffered := bufio.NewReaderSize(source, 64<<10)
	if start, _ := buffered.Peek(len(gzipMagic)); bytes.Equal(start, gzipMagic) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
		buffered = bufio.NewReaderSize(unzipped, 64<<10)
	}
	return &Reader{lines: buffered}, nil
}

// Next returns the next line that may be a record, for [Parse], or io.EOF. The line is valid until the next call. Another error is
// of the source.
func (r *Reader) Next() ([]byte, error) {
	for {
		complete, long, err := r.readLine()
		switch {
		case errors.Is(err, io.EOF) && len(r.line) == 0 && !long, err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case long:
			r.Skipped.TooLong++
		case !complete && !json.Valid(r.line):
			r.Skipped.Incomplete++
		case !bytes.Contains(r.line, []byte(Kind)):
			if len(bytes.TrimSpace(r.line)) > 0 {
				r.Skipped.Other++
			}
		default:
			return r.line, nil
		}
	}
}

// readLine reads a line into r.line, and reports whether it has an end and whether it was too long. It skips the rest of such a
// line.
func (r *Reader) readLine() (complete, long bool, err error) {
	r.line = r.line[:0]
	for {
		part, err := r.lines.ReadSlice('\n')
		if long = long || len(r.line)+len(part) > MaxLineBytes; long {
			r.line = r.line[:0]
		} else {
			r.line = append(r.line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return err == nil, long, err
	}
}

// Errors of [Parse].
var (
	// ErrOther: the line is no record.
	ErrOther = errors.New("it is no record of a decision")
	// ErrNewer: a later version of Sluice wrote the record.
	ErrNewer = errors.New("a later version of Sluice wrote the record")
)

// Parse returns the record of a line. It ignores fields that it does not know.
func Parse(line []byte) (*Record, error) {
	var r Record
	err := json.Unmarshal(line, &r)
	if err != nil {
		// The fields of other lines and of later versions may have other types.
		var head struct {
			Kind    string `json:"kind"`
			Version int    `json:"version"`
		}
		if headErr := json.Unmarshal(line, &head); headErr != nil {
			return nil, headErr
		}
		r.Kind, r.Version = head.Kind, head.Version
	}
	switch {
	case r.Kind != Kind:
		return nil, ErrOther
	case r.Version > Version:
		return nil, ErrNewer
	case err != nil:
		return nil, err
	case r.Version < 1:
		return nil, fmt.Errorf("version: %d is no version of a record", r.Version)
	}
	return &r, nil
}

// Count adds a line that Parse refused.
func (s *Skipped) Count(err error) {
	switch {
	case errors.Is(err, ErrOther):
		s.Other++
	case errors.Is(err, ErrNewer):
		s.Newer++
	default:
		s.Broken++
	}
}

// Add adds what another reader skipped.
func (s *Skipped) Add(other Skipped) {
	s.Other += other.Other
	s.Broken += other.Broken
	s.Incomplete += other.Incomplete
	s.TooLong += other.TooLong
	s.Newer += other.Newer
}
