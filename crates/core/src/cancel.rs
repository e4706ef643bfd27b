//! Cancel requests.
/// Names a client and proves the right to cancel its query.
#[derive(Debug, Clone)]
pub struct CancelKey;
