// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	_ "time/tzdata"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Version and Commit are the version of this build and the commit of its sources. The linker sets both.
var (
	Version = "unknown"
	Commit  = "unknown"
)

// VersionText describes the build for people: version, commit and the version of Go.
func VersionText() string {
	return fmt.Sprintf("%s (commit %s, %s, %s/%s)", Version, Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// APIVersion is the version of the format of all configuration files.
const APIVersion = "config.sluice.dev/v1alpha1"

// maxFileSize in bytes is far above any sensible configuration.
const maxFileSize = 1 << 20

// File is a configuration that [Load] can fill: a pointer to a struct that embeds metav1.TypeMeta
// and [Common] inline.
type File interface {
	// Kind returns the kind of the file, such as WebhookConfig.
	Kind() string
	// Type returns the apiVersion and kind in the file.
	Type() metav1.TypeMeta
	// Default sets the fields that the file leaves out.
	Default()
	// Validate returns all problems, after Default.
	Validate() field.ErrorList
	// SetupLogging returns the configured logger; see [Common].
	SetupLogging(w io.Writer) logr.Logger
}

// Load reads the file at path into the configuration; see [Parse].
func Load(path string, into File) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if info.Size() > maxFileSize {
		return fmt.Errorf("configuration: %s has %d bytes; at most %d are read", path, info.Size(), maxFileSize)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := Parse(raw, into); err != nil {
		return fmt.Errorf("configuration: %s: %w", path, err)
	}
	return nil
}

// Parse decodes YAML strictly: unknown and repeated fields, another apiVersion or kind, and all
// problems that Validate finds are errors. An error of a field in the file begins with its line and column.
func Parse(raw []byte, into File) error {
	at := newPositions(raw)
	if errs := decodeStrict(raw, into); len(errs) > 0 {
		return at.annotate(errs...)
	}
	var invalid field.ErrorList
	if stated := into.Type(); stated.APIVersion != APIVersion {
		invalid = append(invalid, field.NotSupported(field.NewPath("apiVersion"), stated.APIVersion, []string{APIVersion}))
	} else if stated.Kind != into.Kind() {
		invalid = append(invalid, field.NotSupported(field.NewPath("kind"), stated.Kind, []string{into.Kind()}))
	}
	into.Default()
	var errs []error
	for _, each := range append(invalid, into.Validate()...) {
		errs = append(errs, each)
	}
	return at.annotate(errs...)
}

// decodeStrict is stricter than the usual decoders: field names are case-sensitive, and a second
// document is an error.
func decodeStrict(raw []byte, into any) []error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for documents := 0; ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return []error{err}
		}
		asJSON, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return []error{err}
		}
		if string(asJSON) == "null" {
			continue // only comments
		}
		if documents++; documents > 1 {
			return []error{errors.New("more than one document: a configuration is one")}
		}
		strict, err := kjson.UnmarshalStrict(asJSON, into)
		if err != nil {
			strict = append(strict, err)
		}
		if len(strict) > 0 {
			return strict
		}
	}
}

// Main is the main function of a binary that runs until ctx ends. It reads the flags in args and
// the configuration file that they name, and calls run. It returns the exit status: 0 if run
// returned no error, 1 if it did, 2 if the flags or the configuration are invalid.
func Main(ctx context.Context, name string, args []string, stderr io.Writer, cfg File, run func(context.Context, logr.Logger) error) int {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "/etc/sluice/"+name+".yaml", "path of the configuration `file`, of kind "+cfg.Kind())
	version := flags.Bool("version", false, "print the version and exit")
	printDefaults := flags.Bool("print-defaults", false, "print a configuration file with all fields and their defaults, and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "%s: %q: no arguments are expected, only flags\n", name, flags.Args())
		return 2
	case *version:
		fmt.Fprintln(stderr, VersionText())
		return 0
	case *printDefaults:
		if err := WriteDefaults(os.Stdout, cfg); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", name, err)
			return 1
		}
		return 0
	}
	if err := Load(*path, cfg); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 2
	}
	if err := run(ctx, cfg.SetupLogging(stderr)); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}
