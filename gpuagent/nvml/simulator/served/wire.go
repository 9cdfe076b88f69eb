// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice.dev/gpuagent/nvml"
)

// longest is how long a line may be, in bytes.
const longest = 1 << 20

// request is a call.
type request struct {
	Method   string          `json:"method"`
	GPU      string          `json:"gpu,omitempty"`
	Instance uint32          `json:"instance,omitempty"`
	Compute  uint32          `json:"compute,omitempty"`
	Profile  nvml.ProfileID  `json:"profile,omitempty"`
	At       *nvml.Placement `json:"at,omitempty"`
	Mode     nvml.Mode       `json:"mode,omitempty"`
	Since    *time.Time      `json:"since,omitempty"`
}

// reply is what became of it.
type reply struct {
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  *refusal        `json:"error,omitempty"`
}

// refusal is an error of the driver.
type refusal struct {
	Code nvml.Error `json:"code"`
	Text string     `json:"text"`
}

// modes is the answer of MIGMode.
type modes struct {
	Current nvml.Mode `json:"current"`
	Pending nvml.Mode `json:"pending"`
}

// gpu is one of the answer of GPUs.
type gpu struct {
	nvml.GPU
	Err *refusal `json:"Err,omitempty"` // in place of the error, which JSON cannot carry
}

// refused is an error on its way; nil stays nil.
func refused(err error) *refusal {
	if err == nil {
		return nil
	}
	it := &refusal{Code: nvml.ErrUnknown, Text: err.Error()}
	errors.As(err, &it.Code)
	return it
}

// err is the error again.
func (r *refusal) err() error {
	switch {
	case r == nil:
		return nil
	case r.Code == 0:
		return nvml.ErrUnknown
	default:
		return answered{r}
	}
}

// answered is an error of the driver with the words that it came with.
type answered struct{ *refusal }

func (a answered) Error() string { return a.Text }
func (a answered) Unwrap() error { return a.Code }

// readLine reads one line into it, and refuses fields that it does not have.
func readLine(from *bufio.Reader, into any) error {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > longest {
			return fmt.Errorf("a line is longer than %d bytes", longest)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
	return decode(line, into)
}

func decode(line []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("a line is not a message: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("a line is more than one message")
	}
	return nil
}

func writeLine(to io.Writer, it any) error {
	line, err := json.Marshal(it)
	if err != nil {
		return err
	}
	_, err = to.Write(append(line, '\n'))
	return err
}
