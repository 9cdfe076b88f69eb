// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package mail

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"sluice.dev/test/cluster/mailsink"
)

// Find reads the mail that a person means: by its number, or by its file's name or
// path. The error says how to see which there are.
func Find(dir, which string) (*mailsink.Mail, error) {
	file := filepath.Base(which)
	if number, err := strconv.Atoi(which); err == nil {
		if file, err = named(dir, number); err != nil {
			return nil, err
		}
	} else if parent := filepath.Dir(which); parent != "." {
		dir = parent
	}
	m, err := mailsink.Read(dir, file)
	if errors.Is(err, mailsink.ErrNoMail) {
		err = fmt.Errorf("%w; `sluice mail` lists those that there are", err)
	}
	return m, err
}

// named is the file of the mail with a number.
func named(dir string, number int) (string, error) {
	list, err := mailsink.List(dir)
	if err != nil {
		return "", err
	}
	for _, h := range list {
		if h.Number == number {
			return h.File, nil
		}
	}
	return "", fmt.Errorf("%w with number %d; `sluice mail` lists those that there are", mailsink.ErrNoMail, number)
}
