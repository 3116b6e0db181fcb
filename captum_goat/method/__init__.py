"""GOAt itself: record, replay, share, spread, explain."""
