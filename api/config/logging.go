// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Logging says how much is logged and in which form.
type Logging struct {
	// Level is debug, info, warn or error. Default info.
	Level string `json:"level,omitempty"`
	// Format is json, one object a line, or text. Default json.
	Format string `json:"format,omitempty"`
}

var (
	levels  = []string{"debug", "info", "warn", "error"}
	formats = []string{"json", "text"}
)

// Default fills what was left open.
func (l *Logging) Default() {
	if l.Level == "" {
		l.Level = "info"
	}
	if l.Format == "" {
		l.Format = "json"
	}
}

// Validate tells all that is wrong below path.
func (l *Logging) Validate(path *field.Path) field.ErrorList {
	return append(
		oneOf(path.Child("level"), l.Level, levels),
		oneOf(path.Child("format"), l.Format, formats)...)
}

// StartLogging makes a logger that writes to w, and makes it the one of the
// Kubernetes libraries too.
func (c *Common) StartLogging(w io.Writer) logr.Logger {
	l := c.Logging
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // validated; else info
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if l.Format == "text" {
		handler = slog.NewTextHandler(w, options)
	}
	logger := logr.FromSlogHandler(handler)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return logger
}

func oneOf(path *field.Path, value string, allowed []string) field.ErrorList {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}
