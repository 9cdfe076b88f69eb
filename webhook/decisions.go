// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"io"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"sluice.dev/webhook/decisionlog"
)

// Decisions configure the records of decisions: one line of JSON for each admission request.
type Decisions struct {
	// Stdout writes the records to the standard output. Default true.
	Stdout *bool `json:"stdout,omitempty"`
	// Objects records the whole input of policies too: the request, the object and the project. sluice policy replay needs it.
	// Objects can have secrets and personal data: see mask. Default false.
	Objects bool `json:"objects,omitempty"`
	// File writes the records to files as well.
	File DecisionFile `json:"file,omitempty"`
	// Mask are the places of recorded inputs whose texts are replaced: JSON pointers, in which * stands for any text of a step
	// and the step ** for any number of steps. An element of a list matches by its index, or its name if it has one. Everything
	// below a place is masked. An empty list masks nothing.
	Mask []string `json:"mask"`
	// Unmasked are places within those of mask whose texts are recorded, in the same form. Policies and Sluice decide on those
	// of the default.
	Unmasked []string `json:"unmasked"`
}

// DecisionFile is where records are written, with the permission 0600. The size of all files is at most maxBytes times maxFiles.
type DecisionFile struct {
	// Path is the file, in a volume that only this replica of the webhook writes. A full file is renamed to PATH.1, and that one
	// to PATH.2. Default "": no file.
	Path string `json:"path,omitempty"`
	// MaxBytes is the largest size of one file, 65536 (64 KiB) to 10737418240 (10 GiB). Default 104857600 (100 MiB).
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// MaxFiles is the largest number of files, with the present one, 1 to 1000. Default 10.
	MaxFiles int `json:"maxFiles,omitempty"`
}

// The limits of the files of records.
const (
	minDecisionBytes     = 64 << 10
	maxDecisionBytes     = 10 << 30
	defaultDecisionBytes = 100 << 20
	maxDecisionFiles     = 1000
	defaultDecisionFiles = 10
)

func (d *Decisions) setDefaults() {
	if d.Stdout == nil {
		d.Stdout = new(true)
	}
	if d.File.MaxBytes == 0 {
		d.File.MaxBytes = defaultDecisionBytes
	}
	if d.File.MaxFiles == 0 {
		d.File.MaxFiles = defaultDecisionFiles
	}
	if d.Mask == nil {
		d.Mask = decisionlog.DefaultMask
	}
	if d.Unmasked == nil {
		d.Unmasked = decisionlog.DefaultUnmasked
	}
}

func (d *Decisions) validate(path *field.Path) (errs field.ErrorList) {
	file := path.Child("file")
	if d.File.Path != "" && (!filepath.IsAbs(d.File.Path) || filepath.Clean(d.File.Path) != d.File.Path) {
		errs = append(errs, field.Invalid(file.Child("path"), d.File.Path, "want an absolute path without . and .., such as /var/log/sluice/decisions.jsonl"))
	}
	if n := d.File.MaxBytes; n < minDecisionBytes || n > maxDecisionBytes {
		errs = append(errs, field.Invalid(file.Child("maxBytes"), n, "must be 65536 to 10737418240"))
	}
	if n := d.File.MaxFiles; n < 1 || n > maxDecisionFiles {
		errs = append(errs, field.Invalid(file.Child("maxFiles"), n, "must be 1 to 1000"))
	}
	for name, patterns := range map[string][]string{"mask": d.Mask, "unmasked": d.Unmasked} {
		if len(patterns) > decisionlog.MaxPatterns {
			errs = append(errs, field.TooMany(path.Child(name), len(patterns), decisionlog.MaxPatterns))
		}
		for i, pattern := range patterns {
			if _, err := decisionlog.ParsePattern(pattern); err != nil {
				errs = append(errs, field.Invalid(path.Child(name).Index(i), pattern, err.Error()))
			}
		}
	}
	return errs
}

// newDecisionLog returns the log of decisions.
func newDecisionLog(cfg *Decisions, stdout io.Writer, logger logr.Logger) (*decisionlog.Log, error) {
	options := decisionlog.Options{
		Objects: cfg.Objects, Mask: cfg.Mask, Unmasked: cfg.Unmasked, Logger: logger.WithName("decisions"),
	}
	if *cfg.Stdout {
		options.Output = stdout
	}
	if cfg.File.Path != "" {
		options.File = &decisionlog.File{Path: cfg.File.Path, MaxBytes: cfg.File.MaxBytes, MaxFiles: cfg.File.MaxFiles}
	}
	return decisionlog.New(options)
}
