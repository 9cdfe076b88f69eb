// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// logged tells whether the component's log has the text.
func logged(component, text string) error {
	raw, err := os.ReadFile(filepath.Join(shared.dir, "logs", component+".log"))
	if err != nil {
		return err
	}
	if !strings.Contains(string(raw), text) {
		return fmt.Errorf("the log of %s does not say %s", component, text)
	}
	return nil
}
