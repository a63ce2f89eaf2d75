package cniplugin

// Problems are all that is wrong in a configuration.
type Problems []error

// Refuse adds a ConfigError.
func (p *Problems) Refuse(key string, value any, requirement string) {
	*p = append(*p, ConfigError(key, value, requirement))
}

// Add adds the errors that are not nil.
func (p *Problems) Add(errs ...error) {
	for _, err := range errs {
		if err != nil {
			*p = append(*p, err)
		}
	}
}
