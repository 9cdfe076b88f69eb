// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package simulator

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

// maxLineBytes is the maximal length of a line.
const maxLineBytes = 1 << 20

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

// response is the result of a call.
type response struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *driverError    `json:"error,omitempty"`
}

// driverError is an error of the driver.
type driverError struct {
	Code nvml.Error `json:"code"`
	Text string     `json:"text"`
}

// modeResult is the result of MIGMode.
type modeResult struct {
	Current nvml.Mode `json:"current"`
	Pending nvml.Mode `json:"pending"`
}

// gpuResult is an item of the result of GPUs.
type gpuResult struct {
	nvml.GPU
	Err *driverError `json:"Err,omitempty"` // in place of the error, which JSON cannot encode
}

// toDriverError encodes an error; nil stays nil.
func toDriverError(err error) *driverError {
	if err == nil {
		return nil
	}
	it := &driverError{Code: nvml.ErrUnknown, Text: err.Error()}
	errors.As(err, &it.Code)
	return it
}

// toError decodes the error.
func (r *driverError) toError() error {
	switch {
	case r == nil:
		return nil
	case r.Code == 0:
		return nvml.ErrUnknown
	default:
		return remoteError{r}
	}
}

// remoteError is an error of the driver with its original text.
type remoteError struct{ *driverError }

func (a remoteError) Error() string { return a.Text }
func (a remoteError) Unwrap() error { return a.Code }

// readLine decodes one line without unknown fields.
func readLine(from *bufio.Reader, into any) error {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLineBytes {
			return fmt.Errorf("a line is longer than %d bytes", maxLineBytes)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
	return decodeLine(line, into)
}

func decodeLine(line []byte, into any) error {
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
