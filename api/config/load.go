// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// APIVersion is the version of every configuration file's format.
const APIVersion = "config.sluice.dev/v1alpha1"

// maxSize is far above any sensible configuration, in bytes.
const maxSize = 1 << 20

// File is a configuration that [Load] can fill: a pointer to a struct that
// embeds metav1.TypeMeta and [Common] inline.
type File interface {
	// Kind is the file's kind, as in "WebhookConfig".
	Kind() string
	// Type is the apiVersion and kind that the file itself states.
	Type() metav1.TypeMeta
	// Default fills what the file left open.
	Default()
	// Validate tells all that is wrong, after Default.
	Validate() field.ErrorList
	// StartLogging makes the logger that the file asks for; see [Common].
	StartLogging(w io.Writer) logr.Logger
}

// Load fills into from the file at path; see [Parse].
func Load(path string, into File) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if info.Size() > maxSize {
		return fmt.Errorf("configuration: %s has %d bytes; at most %d are read", path, info.Size(), maxSize)
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

// Parse fills into from YAML, strictly: unknown and repeated fields, another
// apiVersion or kind, and whatever Validate finds are errors.
func Parse(raw []byte, into File) error {
	if err := decode(raw, into); err != nil {
		return err
	}
	var errs field.ErrorList
	if stated := into.Type(); stated.APIVersion != APIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), stated.APIVersion, []string{APIVersion}))
	} else if stated.Kind != into.Kind() {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), stated.Kind, []string{into.Kind()}))
	}
	into.Default()
	return append(errs, into.Validate()...).ToAggregate()
}

// decode is strict where the usual decoders are not: the case of a field's name
// counts, and a second document is an error.
func decode(raw []byte, into any) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for documents := 0; ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		asJSON, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return err
		}
		if string(asJSON) == "null" {
			continue // only comments
		}
		if documents++; documents > 1 {
			return errors.New("more than one document: a configuration is one")
		}
		strict, err := kjson.UnmarshalStrict(asJSON, into)
		if err := errors.Join(append(strict, err)...); err != nil {
			return err
		}
	}
}
