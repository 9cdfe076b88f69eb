// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package decisionlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"sluice.dev/api/policytime"
)

// fileMode is the mode of the files: records name users.
const fileMode = 0o600

// retryInterval is the time between attempts to use a file that failed, in machine time.
const retryInterval = time.Second

// File writes lines to a file of bounded size. A full file is renamed from NAME to NAME.1, NAME.1 to NAME.2 and so on, and the oldest
// is removed. It never leaves a part of a line before another one, also after a crash or on a full disk. It is not safe for
// concurrent use.
type File struct {
	// Path is the present file. MaxBytes is the largest size of one file, and MaxFiles their number.
	Path     string
	MaxBytes int64
	MaxFiles int

	file  *os.File
	size  int64
	retry time.Time
	err   error
}

var errTooLong = errors.New("the record is larger than a file may be")

// Write appends a line. After an error it drops lines for a second before it tries again.
func (f *File) Write(line []byte) (int, error) {
	if f.err != nil && policytime.MachineNow().Before(f.retry) {
		return 0, f.err
	}
	if int64(len(line)) > f.MaxBytes {
		return 0, errTooLong
	}
	n, err := f.append(line)
	if f.err = err; err != nil {
		f.close()
		f.retry = policytime.MachineNow().Add(retryInterval)
	}
	return n, err
}

func (f *File) append(line []byte) (int, error) {
	if f.file == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	if f.size > 0 && f.size+int64(len(line)) > f.MaxBytes {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(line)
	if err != nil {
		if n > 0 { // the disk is full: remove the part of the line
			err = errors.Join(err, f.file.Truncate(f.size))
		}
		return 0, err
	}
	f.size += int64(n)
	return n, nil
}

// open opens the file, and ends an incomplete last line that a crash left.
func (f *File) open() error {
	if info, err := os.Stat(f.Path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file", f.Path)
	}
	file, err := os.OpenFile(f.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().Perm() != fileMode {
		err = file.Chmod(fileMode)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size = file, info.Size()
	return f.endLine()
}

// endLine ends the last line.
func (f *File) endLine() error {
	if f.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := f.file.ReadAt(last, f.size-1); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	n, err := f.file.WriteString("\n")
	f.size += int64(n)
	return err
}

// rotate renames all files, and opens a new one.
func (f *File) rotate() error {
	f.close()
	name := func(number int) string {
		if number == 0 {
			return f.Path
		}
		return f.Path + "." + strconv.Itoa(number)
	}
	for number := f.MaxFiles - 1; ; number++ { // also those of a larger MaxFiles
		err := os.Remove(name(number))
		if errors.Is(err, fs.ErrNotExist) && number >= f.MaxFiles {
			break
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for number := f.MaxFiles - 2; number >= 0; number-- {
		if err := os.Rename(name(number), name(number+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return f.open()
}

func (f *File) close() {
	if f.file != nil {
		_ = f.file.Close() // each line is written at once
		f.file = nil
	}
}
