// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
)

const (
	// commentWidth is the width of a comment's text.
	commentWidth = 100
	indentation  = "  "
)

// documented is implemented by the types of a configuration. `go test ./test/house -update` generates the method from the doc
// comments of the fields.
type documented interface {
	// SwaggerDoc returns the documentation of the type, under "", and of its fields.
	SwaggerDoc() map[string]string
}

// WriteDefaults writes a configuration file with all fields of cfg and their defaults, each with its documentation as a comment.
// [Parse] reads it. Optional sections without a default are comments as a whole. It calls cfg.Default.
func WriteDefaults(w io.Writer, cfg File) error {
	cfg.Default()
	complete, ok := reflect.New(reflect.TypeOf(cfg).Elem()).Interface().(File)
	if !ok {
		return fmt.Errorf("print defaults: %T is no pointer", cfg)
	}
	fillSections(reflect.ValueOf(complete).Elem())
	complete.Default()
	var d defaultsWriter
	fmt.Fprintf(&d.out, "apiVersion: %s\nkind: %s\n", APIVersion, cfg.Kind())
	if err := d.writeStruct(reflect.ValueOf(cfg).Elem(), reflect.ValueOf(complete).Elem(), ""); err != nil {
		return fmt.Errorf("print defaults: %w", err)
	}
	_, err := w.Write(d.out.Bytes())
	return err
}

// fillSections sets every pointer to a struct, so that Default sets the fields below it.
func fillSections(v reflect.Value) {
	for i := range v.NumField() {
		field := v.Field(i)
		if field.Kind() == reflect.Pointer && field.Type().Elem().Kind() == reflect.Struct {
			field.Set(reflect.New(field.Type().Elem()))
			field = field.Elem()
		}
		if field.Kind() == reflect.Struct && !isScalar(field) {
			fillSections(field)
		}
	}
}

type defaultsWriter struct {
	out bytes.Buffer
}

// writeStruct writes the fields of v; those of complete where v has no section. Each line begins with the prefix.
func (d *defaultsWriter) writeStruct(v, complete reflect.Value, prefix string) error {
	var docs map[string]string
	if typed, ok := v.Interface().(documented); ok {
		docs = typed.SwaggerDoc()
	}
	for i := range v.NumField() {
		field, filled := v.Field(i), complete.Field(i)
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" && strings.Contains(options, "inline") {
			if v.Type().Field(i).Name == "TypeMeta" {
				continue
			}
			if err := d.writeStruct(field, filled, prefix); err != nil {
				return err
			}
			continue
		}
		d.writeComment(docs[name], v.Type().Field(i).Name, name, prefix)
		line, below := prefix, prefix+indentation
		if field.Kind() == reflect.Pointer && !filled.IsNil() {
			if field.IsNil() && filled.Elem().Kind() == reflect.Struct && !strings.Contains(prefix, "#") {
				line, below = prefix+"#", prefix+"#"+indentation
			}
			field, filled = filled.Elem(), filled.Elem()
		}
		if field.Kind() == reflect.Struct && !isScalar(field) {
			fmt.Fprintf(&d.out, "%s%s:\n", line, name)
			if err := d.writeStruct(field, filled, below); err != nil {
				return err
			}
			continue
		}
		value, err := json.Marshal(field.Interface())
		if err != nil {
			return err
		}
		if text := string(value); text == "null" {
			value = []byte("[]")
		}
		fmt.Fprintf(&d.out, "%s%s: %s\n", line, name, value)
	}
	return nil
}

// isScalar reports whether a struct is one value in a file, such as a duration.
func isScalar(v reflect.Value) bool {
	_, ok := reflect.New(v.Type()).Interface().(json.Unmarshaler)
	return ok
}

// writeComment writes the documentation of a field, which names it as in Go, with its name in the file.
func (d *defaultsWriter) writeComment(text, goName, name, prefix string) {
	if rest, ok := strings.CutPrefix(text, goName+" "); ok {
		text = name + " " + rest
	}
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > commentWidth {
			fmt.Fprintf(&d.out, "%s# %s\n", prefix, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		fmt.Fprintf(&d.out, "%s# %s\n", prefix, line)
	}
}
