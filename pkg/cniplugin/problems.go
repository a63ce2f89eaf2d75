package cniplugin

import "path/filepath"

// Problems are all that is wrong in a configuration.
type Problems []error

// Refuse adds a ConfigError.
func (p *Problems) Refuse(key string, value any, requirement string) {
	*p = append(*p, ConfigError(key, value, requirement))
}

// CheckAbsolute refuses a path that is not absolute. It would depend on the directory of whoever calls the plugin. Empty is none.
func (p *Problems) CheckAbsolute(key, path string) {
	if path != "" && !filepath.IsAbs(path) {
		p.Refuse(key, path, "must be an absolute path")
	}
}

// Add adds the errors that are not nil.
func (p *Problems) Add(errs ...error) {
	for _, err := range errs {
		if err != nil {
			*p = append(*p, err)
		}
	}
}
